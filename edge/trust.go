package edge

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

const (
	// minFetch is the time after a fetch in which refused certificates cause no other one.
	minFetch = 5 * time.Second
	// maxAge is the age at which a bundle is fetched again although nothing was refused, so that
	// withdrawn roots do not stay trusted. A connection attempt waits for that at most maxWait. After
	// a failed fetch the old bundle is used for minRetry.
	maxAge   = time.Hour
	maxWait  = 3 * time.Second
	minRetry = time.Minute
	// maxBundle bounds the size of a bundle, and so the number of its certificates.
	maxBundle = 256 << 10
)

// trust is a trust bundle that is fetched when it is needed. All clients of a module share it.
type trust struct {
	fetch func(context.Context) (*x509.CertPool, error)
	turn  chan struct{} // of capacity 1: full while a goroutine fetches

	mu     sync.Mutex
	last   *x509.CertPool // nil before the first fetch
	at     time.Time      // of the last successful fetch
	failed time.Time      // the end of the last fetch that failed
}

func newTrust(fetch func(context.Context) (*x509.CertPool, error)) *trust {
	return &trust{fetch: fetch, turn: make(chan struct{}, 1)}
}

// roots is a netopt.Options.RootCAs.
func (t *trust) roots(ctx context.Context, refused error) (*x509.CertPool, error) {
	old, due := t.bundle(refused)
	switch {
	case !due:
		return old, nil
	case old == nil || refused != nil:
		return t.renew(ctx, refused)
	}
	limited, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	if newer, err := t.renew(limited, nil); err == nil {
		return newer, nil
	}
	return old, nil
}

// bundle returns the last bundle and whether one is to be fetched instead.
func (t *trust) bundle(refused error) (last *x509.CertPool, due bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	age := time.Since(t.at)
	switch {
	case t.last == nil:
		due = true
	case refused != nil:
		due = age >= minFetch
	default:
		due = age >= maxAge && time.Since(t.failed) >= minRetry
	}
	return t.last, due
}

// renew fetches the bundle. It waits for a fetch of another goroutine, whose bundle may do.
func (t *trust) renew(ctx context.Context, refused error) (*x509.CertPool, error) {
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-t.turn }()
	if last, due := t.bundle(refused); !due {
		return last, nil
	}
	fetched, err := t.fetch(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.failed = time.Now()
		return nil, err
	}
	t.last, t.at = fetched, time.Now()
	return fetched, nil
}

// parseBundle returns the certificates in a PEM text. Other blocks, text between blocks, and
// certificates that cannot be parsed are skipped.
func parseBundle(text []byte) (*x509.CertPool, error) {
	if len(text) > maxBundle {
		return nil, fmt.Errorf("it has %d bytes, more than %d", len(text), maxBundle)
	}
	roots, found := x509.NewCertPool(), false
	var skipped error
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			skipped = err
			continue
		}
		roots.AddCert(cert)
		found = true
	}
	switch {
	case found:
		return roots, nil
	case skipped != nil:
		return nil, fmt.Errorf("%w that can be parsed: %w", errNoCertificate, skipped)
	}
	return nil, errNoCertificate
}

// readBundle reads a bundle from a file.
func readBundle(file string) (*x509.CertPool, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxBundle+1))
	if err != nil {
		return nil, err
	}
	roots, err := parseBundle(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return roots, nil
}
