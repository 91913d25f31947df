package mqtt

import (
	"context"
	"crypto/tls"

	"github.com/hubline-iot/hubline/internal/dialer"
)

// CertificateFiles returns a function for Options.Certificate that reads a certificate chain and
// its key from PEM files at each dial, the certificate of the device first. Both may be the same
// file. While files that were read well once cannot be read or do not fit each other, as may be in
// the middle of a renewal, it returns what it read last. Before that its errors are of Kind
// Invalid; they name the file and show nothing of its content.
func CertificateFiles(certPEM, keyPEM string) func(context.Context) (*tls.Certificate, error) {
	return dialer.CertificateFiles(certPEM, keyPEM)
}
