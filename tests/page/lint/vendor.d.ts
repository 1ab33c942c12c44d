// Libraries in serve_app/web/static/vendor, which index.html loads as scripts.
declare const graphology: any;
declare const Sigma: any;
declare const uPlot: any;
