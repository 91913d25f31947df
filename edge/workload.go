package edge

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// workload calls the workload API of the daemon, one connection for each call. It is safe for
// concurrent use.
//
// Source: the API descriptions of edgelet in the repository Azure/iotedge.
type workload struct {
	endpoint
	module, generation, version string
	dial                        netopt.DialFunc
	timeout                     time.Duration
}

// sign is a transport.Credentials.Sign: the daemon has the key.
func (w *workload) sign(ctx context.Context, text []byte) (mac []byte, err error) {
	body, err := json.Marshal(struct {
		KeyID string `json:"keyId"`
		Algo  string `json:"algo"`
		Data  []byte `json:"data"`
	}{"primary", "HMACSHA256", text})
	if err != nil {
		return nil, err
	}
	path := texts.AppendEscaped([]byte("/modules/"), w.module)
	path = texts.AppendEscaped(append(path, "/genid/"...), w.generation)
	path = append(path, "/sign"...)
	err = w.call(ctx, "sign", http.MethodPost, string(path), body, func(text []byte) (err error) {
		mac, err = parseDigest(text)
		return err
	})
	return mac, err
}

// trustBundle fetches the roots that verify the gateway.
func (w *workload) trustBundle(ctx context.Context) (roots *x509.CertPool, err error) {
	err = w.call(ctx, "trust bundle", http.MethodGet, "/trust-bundle", nil, func(text []byte) (err error) {
		roots, err = parseTrustBundle(text)
		return err
	})
	return roots, err
}

// call makes one request. parse gets the body of a successful answer; its error means that the
// answer makes no sense. The error of call is a *transport.Error, or ctx's if ctx ended.
func (w *workload) call(ctx context.Context, what, method, path string, body []byte,
	parse func([]byte) error) error {
	limited, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	got, err := w.exchange(limited, method, path, body)
	switch {
	case err == nil && got.status == http.StatusOK:
		if err = parse(got.body); err != nil {
			err = &violation{err}
		}
	case err == nil:
		err = statusError(got)
	case ctx.Err() != nil:
		return ctx.Err()
	case limited.Err() != nil:
		err = &slowError{w.timeout}
	}
	if err != nil {
		return failure(what, err)
	}
	return nil
}

// exchange sends a request over a connection of its own and reads the answer. It returns when ctx
// ends.
func (w *workload) exchange(ctx context.Context, method, path string, body []byte) (*answer, error) {
	target := "http://" + w.host + w.base + path + "?api-version=" + url.QueryEscape(w.version)
	request, err := http.NewRequest(method, target, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Close = true
	if body != nil {
		request.Header.Set("Content-Type", "application/json; charset=utf-8")
	}
	conn, err := w.connect(ctx)
	if err != nil {
		return nil, err
	}
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = conn.Close()
	})
	defer func() {
		if !stop() {
			<-closed
		}
		_ = conn.Close()
	}()
	if err := request.Write(conn); err != nil {
		return nil, err
	}
	return readAnswer(conn, request)
}

// connect dials the daemon.
func (w *workload) connect(ctx context.Context) (conn net.Conn, err error) {
	err = callback.Call("Options.Dial", func() (err error) {
		conn, err = w.dial(ctx, w.network, w.addr)
		return err
	})
	if err == nil && conn == nil {
		return nil, errors.New("edge.Options.Dial returned no connection")
	}
	return conn, err
}

// macSize is the size of an HMAC-SHA256.
const macSize = 32

// parseDigest returns the HMAC in the answer to sign.
func parseDigest(text []byte) ([]byte, error) {
	var said struct {
		Digest []byte `json:"digest"`
	}
	if err := json.Unmarshal(text, &said); err != nil {
		return nil, jsonError(err)
	}
	if len(said.Digest) != macSize {
		return nil, fmt.Errorf("digest has %d bytes, want %d", len(said.Digest), macSize)
	}
	return said.Digest, nil
}

// parseTrustBundle returns the roots in the answer to trust-bundle.
func parseTrustBundle(text []byte) (*x509.CertPool, error) {
	var said struct {
		Certificate string `json:"certificate"`
	}
	if err := json.Unmarshal(text, &said); err != nil {
		return nil, jsonError(err)
	}
	roots, err := parseBundle([]byte(said.Certificate))
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return roots, nil
}
