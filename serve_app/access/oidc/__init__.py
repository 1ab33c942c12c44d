"""Sign-in at an OpenID Connect provider: authorization code flow with PKCE.

The flow of one sign-in::

    provider.py   the provider's metadata and keys; exchanges the code
    id_token.py   checks the ID token
    sign_on.py    the complete flow: where to send the browser, and who returns

:mod:`serve_app.access.sign_ins` has the cookies for attempts and for signed-in users. Only ``id_token.py`` needs the
package of the extra ``oidc``.
"""
