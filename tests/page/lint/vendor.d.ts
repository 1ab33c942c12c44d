// Libraries in serve_app/web/static/vendor, which index.html loads as scripts.
declare const uPlot: any;
