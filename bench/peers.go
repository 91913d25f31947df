// Package bench compares Hubline with the raw library below it (the same messages, the same window,
// the same peer, in turns in one run) and checks its budgets.
package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/hubline-iot/hubline/testbroker"
)

// Peer is the other end of the senders: another process, on TCP loopback, so that this process has
// only the cost of the senders.
type Peer struct {
	Name   string
	access access
	close  func() error
}

// Close ends the peer's process and waits for it.
func (p *Peer) Close() error { return p.close() }

// OpenPeer starts the peer of that name, with or without TLS. It ends with Close, or ctx. If it is
// not installed the error is ErrMissing.
func (p *Protocol) OpenPeer(ctx context.Context, name string, secure bool) (*Peer, error) {
	if !slices.Contains(p.Peers, name) {
		return nil, fmt.Errorf("there is no peer %q for %s; give one of %q", name, p.Name, p.Peers)
	}
	if name == "mosquitto" {
		return mosquitto(ctx, secure)
	}
	return childPeer(ctx, peerOrder{p.Name, name, secure})
}

// peerOrder is the input of a peer's process.
type peerOrder struct {
	Protocol, Name string
	Secure         bool
}

func childPeer(ctx context.Context, o peerOrder) (*Peer, error) {
	c, err := startChild(ctx, "peer", o)
	if err != nil {
		return nil, err
	}
	p := &Peer{Name: o.Name, close: func() error { return c.end(nil) }}
	if err := c.hear(&p.access); err != nil {
		return nil, c.end(err)
	}
	return p, nil
}

// peerChild runs a peer until the parent closes the child's input or ends.
func peerChild(in *json.Decoder, say func(any)) (any, error) {
	var o peerOrder
	if err := in.Decode(&o); err != nil {
		return nil, err
	}
	protocol := protocolNamed(o.Protocol)
	switch o.Name {
	case "mochi":
		return nil, serveMochi(in, o.Secure, say)
	case "hub":
		steadyHeap()
		hub, a, err := newHub(protocol, 1, o.Secure, keepFew)
		if err != nil {
			return nil, err
		}
		defer hub.Close()
		say(a)
	default:
		l, a, err := listenBare(protocol, o.Secure)
		if err != nil {
			return nil, err
		}
		defer l.Close()
		say(a)
	}
	if err := in.Decode(new(any)); err != io.EOF {
		return nil, errSettingsOnly(err)
	}
	return nil, nil
}

// steadyHeap keeps new pages and the collector's pace out of the measurement of a hub: the heap has
// its pages, and garbage is collected at 64 MB, whatever the size of the messages.
func steadyHeap() {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(64 << 20)
	pages := make([]byte, 48<<20)
	for i := 0; i < len(pages); i += 4096 {
		pages[i] = 1
	}
	runtime.KeepAlive(pages)
	runtime.GC()
}

func errSettingsOnly(err error) error { return fmt.Errorf("a peer takes only its settings: %w", err) }

// foreign returns access to a peer that ignores keys.
func foreign(addr string, ca []byte) *access {
	return &access{Addr: addr, Host: testbroker.DefaultHostName, CA: ca,
		Devices: []identity{{"dev-0", base64.StdEncoding.EncodeToString(make([]byte, 32))}}}
}

// certificate returns a certificate for the host name of all peers, of the same kind as the hub's,
// and its certificate and key in PEM.
func certificate() (cert tls.Certificate, certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return cert, nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: testbroker.DefaultHostName},
		DNSNames:  []string{testbroker.DefaultHostName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return cert, nil, nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return cert, nil, nil, err
	}
	certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	cert, err = tls.X509KeyPair(certPEM, keyPEM)
	return cert, certPEM, keyPEM, err
}

// listenBare opens the port of a peer that only acknowledges, at almost no cost.
func listenBare(p *Protocol, secure bool) (net.Listener, *access, error) {
	l, err := net.Listen("tcp", anyPort)
	if err != nil {
		return nil, nil, err
	}
	addr := l.Addr().String()
	var ca []byte
	if secure {
		var cert tls.Certificate
		if cert, ca, _, err = certificate(); err != nil {
			_ = l.Close()
			return nil, nil, err
		}
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}})
	}
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // ends with the connection
				_ = p.answer(c)
				_ = c.Close()
			}()
		}
	}()
	a := foreign(addr, ca)
	a.Bare = true
	return l, a, nil
}

// answerMQTT gives every packet the shortest answer that its version of MQTT allows. It allocates
// nothing per packet.
func answerMQTT(c net.Conn) error {
	r, w := bufio.NewReaderSize(c, 64<<10), bufio.NewWriterSize(c, 64<<10)
	reply := make([]byte, 8)
	for {
		if r.Buffered() == 0 {
			if err := w.Flush(); err != nil {
				return err
			}
		}
		kind, err := r.ReadByte()
		if err != nil {
			return err
		}
		size, err := binary.ReadUvarint(r) // the remaining length has the same form
		if err != nil {
			return err
		}
		rest := int(size)
		reply = reply[:0]
		switch kind >> 4 {
		case 1: // CONNECT
			head, err := r.Peek(7) // ends with the protocol level
			if err != nil {
				return err
			}
			if reply = append(reply, 0x20, 2, 0, 0); head[6] == 5 {
				reply = append(reply[:1], 3, 0, 0, 0) // with no properties
			}
		case 3: // PUBLISH
			head, err := r.Peek(2)
			if err != nil {
				return err
			}
			topic := 2 + int(binary.BigEndian.Uint16(head))
			if _, err := r.Discard(topic); err != nil {
				return err
			}
			rest -= topic
			if kind&6 == 0 { // QoS 0
				break
			}
			id, err := r.Peek(2)
			if err != nil {
				return err
			}
			reply = append(reply, 0x40, 2, id[0], id[1])
		case 12: // PINGREQ
			reply = append(reply, 0xD0, 0)
		case 14: // DISCONNECT
			return w.Flush()
		}
		if _, err := r.Discard(rest); err != nil {
			return err
		}
		if _, err := w.Write(reply); err != nil {
			return err
		}
	}
}
