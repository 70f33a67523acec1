// Verifies the requests in the JSON list on standard input with the npm library; prints one line for each.
const { Webhook } = require('standardwebhooks')
for (const r of JSON.parse(require('fs').readFileSync(0, 'utf8'))) {
  try {
    console.log('ok ' + new Webhook(r.secret).verify(r.body, r.headers).type)
  } catch (e) {
    console.log('refused ' + e.message)
  }
}
