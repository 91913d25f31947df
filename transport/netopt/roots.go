package netopt

import (
	"context"
	"crypto/x509"
	"errors"
	"os"
	"sync"

	"github.com/hubline-iot/hubline/transport"
)

// RootFiles returns a function for Options.RootCAs that reads the certificates to trust from PEM
// files at each dial, in place of the system's roots: those of a private authority, or of a hub for
// tests, such as testhub-ca.pem. They count for the hub alone: blob storage, to which fileupload
// sends, is verified with the roots of Options.TLS.
//
// Once all files were read, the function returns their certificates again while one of them is
// missing or has none, as may happen in the middle of an update. Before that its errors are of Kind
// Invalid and name the file. The function is safe for concurrent use.
func RootFiles(pemFiles ...string) func(ctx context.Context, refused error) (*x509.CertPool, error) {
	var mu sync.Mutex // guards last
	var last *x509.CertPool
	return func(context.Context, error) (*x509.CertPool, error) {
		roots, err := readRoots(pemFiles)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			last = roots
		case last == nil:
			return nil, &transport.Error{Kind: transport.Invalid, Scope: transport.ScopeConnection,
				Op: transport.OpDial, Err: err}
		}
		return last, nil
	}
}

func readRoots(files []string) (*x509.CertPool, error) {
	if len(files) == 0 {
		return nil, errors.New("roots: there is no file; give at least one to RootFiles")
	}
	roots := x509.NewCertPool()
	for _, name := range files {
		pem, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if !roots.AppendCertsFromPEM(pem) {
			return nil, errors.New(name + ": no certificate in PEM; give a file that has -----BEGIN CERTIFICATE-----")
		}
	}
	return roots, nil
}
