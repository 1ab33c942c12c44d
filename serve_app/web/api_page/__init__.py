"""The reference of the API as a page: its routes with examples, the Python client, and the documents."""

from serve_app.web.api_page.page import api_page

__all__ = ["api_page"]
