// Package redisurl opens the store that the setting store.url names.
//
//	redis://[user:pass@]host[:6379][/db]
//	rediss://…                                                                over TLS
//	unix://[user:pass@]/path/to/socket[?db=N]
//	redis-sentinel://[user:pass@]h1[:26379],h2,h3/master[/db]?sentinel_user=…&sentinel_password=…&tls=1
//	redis-cluster://[user:pass@]h1[:6379],h2,h3?tls=1
//
// User and password are percent-encoded where they hold one of / ? # @ : %. A user or password that is not needed may be left
// out, as in redis://:pass@host. With TLS, ca_file, cert_file, key_file and server_name may be added to the query.
package redisurl
