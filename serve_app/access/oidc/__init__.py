"""Sign-in at an OpenID Connect provider: authorization code flow with PKCE.

The flow of one sign-in::

    attempt.py    cookie, state, nonce and code verifier of an attempt, all derived from one secret of the browser
    provider.py   the provider's metadata and keys; exchanges the code
    id_token.py   checks the ID token
    sign_on.py    the whole: where to send the browser, and who comes back

:mod:`serve_app.access.sign_ins` has the cookie of a user who has signed in. Only ``id_token.py`` needs the package of
the extra ``oidc``.
"""
