package netopt

import (
	"context"
	"crypto/tls"

	"github.com/hubline-iot/hubline/internal/clientcert"
)

// CertificateFiles returns a function for Options.Certificate that reads a certificate chain, the
// device's own certificate first, and its key from PEM files at each dial. Both may be in one file.
//
// Once a pair was read, the function returns it again while the files are missing or do not match,
// as may happen in the middle of a renewal. When that pair has expired, the error of the dial also
// says why the files could not be used. Before the first pair its errors are of Kind Invalid and
// name the files; no error shows their content. The function is safe for concurrent use.
func CertificateFiles(certPEM, keyPEM string) func(context.Context) (*tls.Certificate, error) {
	return clientcert.Files(certPEM, keyPEM)
}
