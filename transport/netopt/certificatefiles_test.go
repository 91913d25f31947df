package netopt

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
)

// pair returns the PEM files of a new certificate.
func pair(t *testing.T, until time.Time) (cert, key []byte) {
	c := testbroker.NewClientCert("d", until.Add(-time.Hour), until)
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func TestErrorsNameTheFiles(t *testing.T) {
	cert, key := pair(t, time.Now().Add(time.Hour))
	_, otherKey := pair(t, time.Now().Add(time.Hour))
	for name, c := range map[string]struct {
		cert, key []byte // nil: missing
		names     []string
	}{
		"no certificate":   {nil, key, []string{"cert.pem"}},
		"no key":           {cert, nil, []string{"key.pem"}},
		"bad certificate":  {[]byte("junk"), key, []string{"cert.pem", "key.pem"}},
		"bad key":          {cert, []byte("junk"), []string{"cert.pem", "key.pem"}},
		"another one's":    {cert, otherKey, []string{"cert.pem", "key.pem"}},
		"the wrong way up": {key, cert, []string{"cert.pem", "key.pem"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, content := range map[string][]byte{"cert.pem": c.cert, "key.pem": c.key} {
				if content != nil {
					require.NoError(t, os.WriteFile(filepath.Join(dir, file), content, 0o600))
				}
			}
			_, err := CertificateFiles(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))(t.Context())
			require.ErrorIs(t, err, transport.Invalid)
			for _, file := range c.names {
				require.ErrorContains(t, err, filepath.Join(dir, file))
			}
		})
	}
}

// The methods of an error may panic, as those of a nil pointer do.
func TestACertificateWhoseErrorPanics(t *testing.T) {
	o := &Options{Certificate: func(context.Context) (*tls.Certificate, error) { return nil, (*os.PathError)(nil) }}
	_, err := o.ClientCertificate(t.Context(), time.Now)
	require.ErrorIs(t, err, transport.Unauthorized)
	require.ErrorContains(t, err, "an error whose Error method panics")
}

// The error names the unreadable file, because that is the problem to fix.
func TestAnExpiredLastCertificateReportsWhyTheFilesCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	certPath, keyPath := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	until := time.Now().Add(time.Hour)
	cert, key := pair(t, until)
	require.NoError(t, os.WriteFile(certPath, cert, 0o600))
	require.NoError(t, os.WriteFile(keyPath, key, 0o600))
	now := time.Now()
	read := CertificateFiles(certPath, keyPath)
	dial := func() error {
		wrapped := func(ctx context.Context) (*tls.Certificate, error) { return read(ctx) }
		_, err := (&Options{Certificate: wrapped}).ClientCertificate(t.Context(), func() time.Time { return now })
		return err
	}
	require.NoError(t, dial())
	require.NoError(t, os.Remove(keyPath))
	require.NoError(t, dial(), "the last one is still good")

	now = until.Add(time.Minute)
	err := dial()
	require.ErrorIs(t, err, transport.Unauthorized)
	require.ErrorContains(t, err, "expired at ")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, keyPath)

	require.NoError(t, os.WriteFile(keyPath, []byte("half a key"), 0o600))
	require.ErrorContains(t, dial(), keyPath)

	require.NoError(t, os.WriteFile(keyPath, key, 0o600))
	err = dial()
	require.ErrorContains(t, err, "expired at ")
	require.NotContains(t, err.Error(), "newer", "the files were read well")
}

// Of two concurrent dials, the one that read first must not store last.
func TestConcurrentDialsReadTheFilesOneAfterTheOther(t *testing.T) {
	var inside, loads atomic.Int32
	load := files("", "", func(string, string) (tls.Certificate, error) {
		if inside.Add(1) != 1 {
			t.Error("two dials read at a time")
		}
		for range 10 {
			runtime.Gosched()
		}
		inside.Add(-1)
		loads.Add(1)
		return tls.Certificate{}, nil
	})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				_, _ = load(t.Context())
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 800, loads.Load())
}
