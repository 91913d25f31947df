package dialer

import (
	"crypto/sha256"
	"crypto/tls"
)

// sessionsKept bounds the TLS sessions that one transport can resume. Each takes 1 to 3 KB.
const sessionsKept = 16

// resumable sets a cache of TLS sessions in base, nil for the defaults, so that a reconnect needs
// no certificates: half the bytes, no signatures, and with TLS 1.2 a round trip less. crypto/tls
// verifies the server's chain against the roots of the time when it resumes.
//
// There is none where a resumption would leave out what the program asked for: it does not call
// VerifyPeerCertificate, and which of several certificates TLS would send is not known here.
// SessionTicketsDisabled turns resumption off.
func resumable(base *tls.Config) *tls.Config {
	if base == nil {
		return &tls.Config{ClientSessionCache: tls.NewLRUClientSessionCache(sessionsKept)}
	}
	if base.ClientSessionCache != nil || base.SessionTicketsDisabled || base.VerifyPeerCertificate != nil ||
		base.GetClientCertificate != nil || len(base.Certificates) > 0 {
		return base
	}
	c := base.Clone()
	c.ClientSessionCache = tls.NewLRUClientSessionCache(sessionsKept)
	return c
}

// certificateSessions keeps the sessions of one client certificate apart: a session resumed is the
// identity of the certificate that it began with.
type certificateSessions struct {
	tls.ClientSessionCache
	id string
}

func sessionsFor(cache tls.ClientSessionCache, cert *tls.Certificate) tls.ClientSessionCache {
	sum := sha256.Sum256(cert.Certificate[0])
	return certificateSessions{cache, string(sum[:])}
}

func (s certificateSessions) Get(key string) (*tls.ClientSessionState, bool) {
	return s.ClientSessionCache.Get(s.id + key)
}

func (s certificateSessions) Put(key string, state *tls.ClientSessionState) {
	s.ClientSessionCache.Put(s.id+key, state)
}
