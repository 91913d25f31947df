// Package httpguard keeps bytes that no request asked for away from net/http's HTTP/1 client.
// net/http writes such bytes unchanged to the standard logger, including any secrets or control
// characters that the peer sent.
//
// A [Conn] sits between net/http and a connection, above TLS. It finds the end of each response and
// discards all bytes after it. It is for HTTP/1 only, and without upgrades (status 101).
package httpguard
