package dialer

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
)

// sessions are the latest TLS sessions of the process, by host, at 2 to 4 KB each. A reconnect by
// one needs no certificates: a third of the bytes, no signatures, and with TLS 1.2 a round trip
// less. The transports share them, because crypto/tls verifies the server's chain against the roots
// of the connection that resumes.
var sessions = tls.NewLRUClientSessionCache(32)

// resumable makes a connection resume a session, cert is its client certificate. Where a resumption
// would leave out what the program asked for, only a cache of the program's own is used: a
// resumption does not call VerifyPeerCertificate and sends no client certificate. Some brokers have
// none for the connection then, and refuse the device.
func resumable(c *tls.Config, cert *tls.Certificate) {
	if c.ClientSessionCache == nil && c.VerifyPeerCertificate == nil && c.GetClientCertificate == nil &&
		len(c.Certificates) == 0 && cert == nil {
		c.ClientSessionCache = sessions
	}
	if cert != nil && c.ClientSessionCache != nil {
		chain := sha256.Sum256(bytes.Join(cert.Certificate, nil))
		c.ClientSessionCache = certificateSessions{c.ClientSessionCache, string(chain[:])}
	}
}

// certificateSessions keeps the sessions of one client certificate and chain apart: a session
// resumed is the identity of the certificate that it began with.
type certificateSessions struct {
	tls.ClientSessionCache
	id string
}

func (s certificateSessions) Get(key string) (*tls.ClientSessionState, bool) {
	return s.ClientSessionCache.Get(s.id + key)
}

func (s certificateSessions) Put(key string, state *tls.ClientSessionState) {
	s.ClientSessionCache.Put(s.id+key, state)
}
