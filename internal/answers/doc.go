// Package answers keeps bytes that no request asked for away from net/http's HTTP/1 client, which
// writes them to the standard logger as they are, with whatever secrets or control characters the
// peer put there.
//
// A [Conn] stands between net/http and a connection, above TLS. It knows where an answer ends and
// hands on no byte behind that. It is for HTTP/1 only, and steps aside after an upgrade (status
// 101).
package answers
