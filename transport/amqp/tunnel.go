package amqp

import (
	"context"
	"crypto/tls"

	"github.com/hubline-iot/hubline/internal/dialer"
)

// A Tunnel carries AMQP within another protocol. It is used by several dials at a time. Package
// mqtt describes its methods, which are the same there.
type Tunnel = dialer.Tunnel

// Peer is what a Tunnel may want to know of the far end: Host is the name that was dialed and that
// the certificate stands for; ClientCertificate says that the device proves its identity with one.
type Peer = dialer.Peer

// owing is what the connection of a Tunnel may be, see there.
type owing = dialer.Owing

// CertificateFiles returns a function for Options.Certificate that reads a certificate chain and
// its key from PEM files at each dial, the certificate of the device first. Both may be the same
// file. While files that were read well once cannot be read or do not fit each other, as may be in
// the middle of a renewal, it returns what it read last. Before that its errors are of Kind
// Invalid; they name the file and show nothing of its content.
func CertificateFiles(certPEM, keyPEM string) func(context.Context) (*tls.Certificate, error) {
	return dialer.CertificateFiles(certPEM, keyPEM)
}
