package clientcert

import (
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"sync"

	"github.com/hubline-iot/hubline/transport"
)

// Files returns the function that netopt.CertificateFiles documents.
func Files(certPEM, keyPEM string) func(context.Context) (*tls.Certificate, error) {
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

// readErrorKey is the context's key for a *error that receives why Files returned an older
// certificate. The program may wrap the function, so a context is the only path.
type readErrorKey struct{}
