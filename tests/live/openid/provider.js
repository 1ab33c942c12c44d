// An OpenID provider on 127.0.0.1: oidc-provider with its own pages, where any name and password sign in.
// Users whose name begins with "guest" are in no group that matters.
//   node provider.js PORT CLIENT SECRET HOME
import Provider from "oidc-provider";

const [port, client, secret, home] = process.argv.slice(2);
const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [
    {
      client_id: client,
      client_secret: secret,
      redirect_uris: [`${home}login/callback`],
      post_logout_redirect_uris: [home],
      response_types: ["code"],
      grant_types: ["authorization_code"],
    },
  ],
  claims: { openid: ["sub"], profile: ["preferred_username", "groups"], email: ["email"] },
  cookies: { keys: ["of a test"] },
  async findAccount(_, id) {
    const groups = id.startsWith("guest") ? ["guests"] : ["sre"];
    return { accountId: id, claims: () => ({ sub: id, preferred_username: id, groups, email: `${id}@example.org` }) };
  },
  // No page that asks for consent: these tests are about what follows.
  async loadExistingGrant({ oidc }) {
    const grant = new provider.Grant({ clientId: oidc.client.clientId, accountId: oidc.session.accountId });
    grant.addOIDCScope("openid profile email");
    await grant.save();
    return grant;
  },
});
provider.listen(Number(port), "127.0.0.1");
