// Libraries in serve_app/web/static/vendor, which the pages load as scripts.
declare const uPlot: any;
declare const SwaggerUIBundle: any;
