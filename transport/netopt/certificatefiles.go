package netopt

import (
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"sync"

	"github.com/hubline-iot/hubline/transport"
)

// CertificateFiles returns a function for Options.Certificate that reads a certificate chain, the
// device's own certificate first, and its key from PEM files at each dial. Both may be in one file.
//
// Once a pair was read, the function returns it again while the files are missing or do not match,
// as may happen in the middle of a renewal. When that pair has expired, the error of the dial also
// says why the files could not be used. Before the first pair its errors are of Kind Invalid and
// name the files; no error shows their content. The function is safe for concurrent use.
func CertificateFiles(certPEM, keyPEM string) func(context.Context) (*tls.Certificate, error) {
	return files(certPEM, keyPEM, tls.LoadX509KeyPair)
}

func files(certPEM, keyPEM string, load func(certPEM, keyPEM string) (tls.Certificate, error)) func(
	context.Context) (*tls.Certificate, error) {
	// mu is held while the files are read, so that of two concurrent dials none replaces a newer
	// certificate by an older one.
	var mu sync.Mutex
	var last *tls.Certificate
	return func(ctx context.Context) (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		cert, err := load(certPEM, keyPEM)
		if err == nil {
			last = &cert
			return last, nil
		}
		if _, named := errors.AsType[*fs.PathError](err); !named {
			err = &labelError{certPEM + " with key " + keyPEM + ": ", err}
		}
		if last == nil {
			return nil, certificateError(transport.Invalid, err)
		}
		if readErr, ok := ctx.Value(readErrorKey{}).(*error); ok {
			*readErr = err
		}
		return last, nil
	}
}

// readErrorKey is the context's key for a *error that receives why CertificateFiles returned an
// older certificate. The program may wrap the function, so a context is the only path.
type readErrorKey struct{}
