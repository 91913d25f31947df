package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	hubhttp "github.com/hubline-iot/hubline/transport/http"
	"github.com/hubline-iot/hubline/transport/netopt"
)

func init() { children["https"] = httpsChild }

// HTTPSPeers are the targets of the requests, over TLS, in separate processes: a server that reads
// requests and answers 204, and the in-process hub, which unpacks batches and keeps a log.
var HTTPSPeers = []string{"bare", "hub"}

// httpsChild runs such a peer.
func httpsChild(in *json.Decoder, say func(any)) (any, error) {
	var name string
	if err := in.Decode(&name); err != nil {
		return nil, err
	}
	if !slices.Contains(HTTPSPeers, name) {
		return nil, fmt.Errorf("no peer is called %q; there are %q", name, HTTPSPeers)
	}
	if name == "hub" {
		hub, err := testbroker.New(&testbroker.Options{Keep: keepFew})
		if err != nil {
			return nil, err
		}
		defer hub.Close()
		addr, err := hub.Listen(testbroker.PortHTTPS, "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		dev, err := hub.AddDevice("dev-0")
		if err != nil {
			return nil, err
		}
		say(&access{Addr: addr.String(), Host: hub.HostName(), CA: hub.CAPEM(),
			Devices: []identity{{dev.ID, dev.PrimaryKey}}})
	} else {
		cert, ca, _, err := certificate()
		if err != nil {
			return nil, err
		}
		l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
		if err != nil {
			return nil, err
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusNoContent)
		})}
		defer server.Close()
		go server.Serve(l)
		say(foreign(l.Addr().String(), ca))
	}
	if err := in.Decode(new(any)); err != io.EOF {
		return nil, fmt.Errorf("a peer takes only its name: %w", err)
	}
	return nil, nil
}

// HTTPSPeer is a running peer.
type HTTPSPeer struct {
	child  *child
	access access
}

// StartHTTPSPeer starts one of HTTPSPeers.
func StartHTTPSPeer(ctx context.Context, name string) (*HTTPSPeer, error) {
	c, err := startChild(ctx, "https", name)
	if err != nil {
		return nil, err
	}
	p := &HTTPSPeer{child: c}
	if err := c.hear(&p.access); err != nil {
		return nil, c.end(err)
	}
	return p, nil
}

// Close ends the peer.
func (p *HTTPSPeer) Close() error { return p.child.end(nil) }

// Calls counts the reads and writes of sockets. Each is one or two system calls: a read without
// data is followed by a wait.
type Calls struct{ Reads, Writes atomic.Int64 }

func (c *Calls) dial(addr string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &countedConn{conn, c}, nil
	}
}

type countedConn struct {
	net.Conn
	calls *Calls
}

func (c *countedConn) Read(b []byte) (int, error) {
	c.calls.Reads.Add(1)
	return c.Conn.Read(b)
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.calls.Writes.Add(1)
	return c.Conn.Write(b)
}

// HTTPSSenders are the compared senders. The others are compared with the first.
var HTTPSSenders = []struct {
	Name string
	Open func(p *HTTPSPeer, window, size int, calls *Calls) (Sender, error)
}{
	{"net/http, a request a message", rawHTTPS},
	{"a request a message", func(p *HTTPSPeer, window, size int, calls *Calls) (Sender, error) {
		return overHTTPS(p, window, size, calls, 1)
	}},
	{"batches", func(p *HTTPSPeer, window, size int, calls *Calls) (Sender, error) {
		return overHTTPS(p, window, size, calls, 0)
	}},
}

// overHTTPS is the device client, with receipts in a ring.
func overHTTPS(p *HTTPSPeer, window, size int, calls *Calls, batch int) (Sender, error) {
	creds, err := p.access.creds(0)
	if err != nil {
		return nil, err
	}
	t := hubhttp.New(&hubhttp.Options{Network: netopt.Options{TLS: p.access.tls(), Dial: calls.dial(p.access.Addr)},
		Batch: batch, NoProof: true})
	c, err := device.New(creds, t, &device.Options{Window: window, NoMessageIDs: true})
	if err != nil {
		return nil, err
	}
	ctx, cancel := opening()
	defer cancel()
	if err := c.Open(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &hublineSender{c, &transport.Message{Body: make([]byte, size)}, make([]device.Receipt, window)}, nil
}

// rawHTTPS uses the library as most programs do, with sequential requests.
func rawHTTPS(p *HTTPSPeer, _, size int, calls *Calls) (Sender, error) {
	creds, err := p.access.creds(0)
	if err != nil {
		return nil, err
	}
	ctx, cancel := opening()
	defer cancel()
	token, err := creds.NewToken(ctx)
	if err != nil {
		return nil, err
	}
	return &rawHTTPSSender{
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: p.access.tls(),
			DialContext: calls.dial(p.access.Addr)}},
		url:   "https://" + p.access.Host + "/devices/" + creds.DeviceID + "/messages/events?api-version=2021-04-12",
		token: token.Text.Reveal(), body: make([]byte, size),
	}, nil
}

type rawHTTPSSender struct {
	client     *http.Client
	url, token string
	body       []byte
}

func (s *rawHTTPSSender) Send(ctx context.Context, n int) error {
	for range n {
		q, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(s.body))
		if err != nil {
			return err
		}
		q.Header.Set("Authorization", s.token)
		a, err := s.client.Do(q)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, a.Body)
		_ = a.Body.Close()
		if a.StatusCode != http.StatusNoContent {
			return errors.New(a.Status)
		}
	}
	return nil
}

func (s *rawHTTPSSender) Close() { s.client.CloseIdleConnections() }
