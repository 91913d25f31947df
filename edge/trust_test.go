package edge_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
)

// bundles is a daemon with a trust bundle that changes.
type bundles struct {
	*daemon
	text string // empty: the daemon refuses; hangs: it does not answer
	ask  func(ctx context.Context, refused error) (*x509.CertPool, error)
}

func withBundles(t *testing.T, f func(t *testing.T, b *bundles)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bundles{}
		b.daemon = &daemon{answer: func(asked) string {
			switch b.text {
			case "":
				return answered(503, "")
			case hangs:
				return ""
			}
			return answered(200, jsonOf("certificate", b.text))
		}}
		b.ask = b.module(t, ofRuntime).Network.RootCAs
		f(t, b)
		b.peers.Wait()
	})
}

// renew gives the daemon another bundle and returns its roots.
func (b *bundles) renew(t *testing.T) *x509.CertPool {
	text, roots := certificates(t, 1)
	b.text = string(text)
	return roots
}

// requireRoots asks for roots and compares them, and the number of fetches so far.
func (b *bundles) requireRoots(t *testing.T, refused error, want *x509.CertPool, fetches int) {
	t.Helper()
	got, err := b.ask(t.Context(), refused)
	require.NoError(t, err)
	require.True(t, want.Equal(got))
	require.Len(t, b.calls(), fetches)
}

var errRefused = errors.New("certificate signed by unknown authority")

func TestTheBundleIsFetchedAgainAfterARefusal(t *testing.T) {
	withBundles(t, func(t *testing.T, b *bundles) {
		first := b.renew(t)
		b.requireRoots(t, nil, first, 1)
		second := b.renew(t)
		b.requireRoots(t, nil, first, 1)
		b.requireRoots(t, errRefused, first, 1) // within 5 s
		time.Sleep(4 * time.Second)
		b.requireRoots(t, errRefused, first, 1)
		time.Sleep(time.Second)
		b.requireRoots(t, errRefused, second, 2)
		b.requireRoots(t, nil, second, 2)
	})
}

func TestAnOldBundleIsFetchedAgain(t *testing.T) {
	withBundles(t, func(t *testing.T, b *bundles) {
		first := b.renew(t)
		b.requireRoots(t, nil, first, 1)
		second := b.renew(t)
		time.Sleep(time.Hour - time.Second)
		b.requireRoots(t, nil, first, 1)
		time.Sleep(time.Second)
		b.requireRoots(t, nil, second, 2)

		time.Sleep(time.Hour)
		b.text = ""
		b.requireRoots(t, nil, second, 3) // the daemon does not answer
		_, err := b.ask(t.Context(), errRefused)
		require.ErrorIs(t, err, transport.Unavailable)
		third := b.renew(t)
		time.Sleep(time.Minute)
		b.requireRoots(t, nil, third, 5)
	})
}

func TestWithoutABundleEachConnectionAsks(t *testing.T) {
	withBundles(t, func(t *testing.T, b *bundles) {
		for range 3 {
			_, err := b.ask(t.Context(), nil)
			require.ErrorIs(t, err, transport.Unavailable)
		}
		roots := b.renew(t)
		b.requireRoots(t, nil, roots, 4)
	})
}

// The clients of one module wait for one fetch, each until its own context ends.
func TestClientsShareTheBundle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text, roots := certificates(t, 1)
		d := &daemon{answer: func(asked) string {
			time.Sleep(10 * time.Second)
			return answered(200, jsonOf("certificate", string(text)))
		}}
		m := d.module(t, ofRuntime)
		var clients sync.WaitGroup
		for range 20 {
			clients.Go(func() {
				got, err := m.Network.RootCAs(t.Context(), nil)
				require.NoError(t, err)
				require.True(t, roots.Equal(got))
			})
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := m.Network.RootCAs(ctx, nil)
		require.Equal(t, context.DeadlineExceeded, err)
		clients.Wait()
		require.Len(t, d.calls(), 1)
	})
}

func TestBundlesInPEM(t *testing.T) {
	one, roots := certificates(t, 1)
	many, manyRoots := certificates(t, 150)
	other := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")})
	broken := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})
	for name, c := range map[string]struct {
		text  string
		roots *x509.CertPool // nil: an error
		err   string
	}{
		"one":                   {string(one), roots, ""},
		"many":                  {string(many), manyRoots, ""},
		"CRLF":                  {strings.ReplaceAll(string(one), "\n", "\r\n"), roots, ""},
		"behind other blocks":   {string(other) + string(broken) + string(one), roots, ""},
		"before a broken end":   {string(one) + "-----BEGIN CERTIFICATE-----\nAAAA", roots, ""},
		"other blocks":          {string(other), nil, "no certificate in it"},
		"a broken one":          {string(broken), nil, "no certificate in it that can be parsed: x509"},
		"nothing":               {" ", nil, "no certificate in it"},
		"too large, with a one": {string(one) + strings.Repeat(" ", 256<<10), nil, "more than 262144"},
	} {
		t.Run(name, func(t *testing.T) {
			withBundles(t, func(t *testing.T, b *bundles) {
				b.text = c.text
				got, err := b.ask(t.Context(), nil)
				file := filepath.Join(t.TempDir(), "ca.pem")
				require.NoError(t, os.WriteFile(file, []byte(c.text), 0o600))
				_, fileErr := variables{"EdgeHubConnectionString": moduleString, "EdgeModuleCACertificateFile": file}.module()
				if c.roots != nil {
					require.NoError(t, err)
					require.NoError(t, fileErr)
					require.True(t, c.roots.Equal(got))
					return
				}
				require.ErrorContains(t, err, c.err)
				require.ErrorContains(t, fileErr, c.err)
				require.ErrorIs(t, fileErr, transport.Invalid)
			})
		})
	}
}

// A file that is replaced is read again after a refusal.
func TestACAFileIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "ca.pem")
		first, _ := certificates(t, 1)
		second, roots := certificates(t, 1)
		require.NoError(t, os.WriteFile(file, first, 0o600))
		m, err := variables{"EdgeHubConnectionString": moduleString, "EdgeModuleCACertificateFile": file}.module()
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, second, 0o600))
		time.Sleep(time.Minute)
		got, err := m.Network.RootCAs(t.Context(), errRefused)
		require.NoError(t, err)
		require.True(t, roots.Equal(got))
		require.NoError(t, os.Remove(file))
		time.Sleep(time.Minute)
		_, err = m.Network.RootCAs(t.Context(), errRefused)
		require.ErrorIs(t, err, os.ErrNotExist)
	})
}

// No answer of the daemon makes a call panic, hang or return what it should not.
func FuzzAnswersOfTheDaemon(f *testing.F) {
	for _, c := range refusals {
		if len(c.answer) < 10_000 {
			f.Add([]byte(c.answer))
		}
	}
	text, _ := certificates(f, 2)
	f.Add([]byte(answered(200, jsonOf("certificate", string(text)))))
	f.Add([]byte(answered(200, jsonOf("digest", make([]byte, 32)))))
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		synctest.Test(t, func(t *testing.T) {
			d := &daemon{answer: func(asked) string { return string(raw) }}
			m := d.module(t, ofRuntime)
			mac, err := m.Credentials.Sign(t.Context(), []byte("text"))
			require.True(t, err == nil && len(mac) == 32 || err != nil && len(mac) == 0)
			roots, err2 := m.Network.RootCAs(t.Context(), nil)
			require.True(t, (err2 == nil) == (roots != nil && !roots.Equal(x509.NewCertPool())))
			for _, err := range []error{err, err2} {
				if err != nil {
					require.NotNil(t, transport.Find(err))
					require.NotEqual(t, transport.Unknown, transport.KindOf(err))
				}
			}
			d.peers.Wait()
		})
	})
}

// Any environment gives a module with valid credentials, or an error that names a variable.
func FuzzEnvironments(f *testing.F) {
	for name, value := range ofRuntime {
		f.Add(name, value)
		f.Add(name, "")
	}
	f.Add("EdgeHubConnectionString", moduleString)
	f.Add("IOTEDGE_WORKLOADURI", "http://[::1]:15580/base%2F")
	f.Fuzz(func(t *testing.T, name, value string) {
		m, err := ofRuntime.with(name, value).module()
		if err != nil {
			require.ErrorIs(t, err, transport.Invalid)
			require.Contains(t, err.Error(), name)
			return
		}
		require.NoError(t, m.Credentials.Validate())
		require.NotEmpty(t, m.Credentials.ModuleID)
	})
}
