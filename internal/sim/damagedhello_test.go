package sim_test

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
)

// dialer is the type of a transport's Dial option.
type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// damagedWrite flips one byte of the first write, the ClientHello.
type damagedWrite struct {
	net.Conn
	at    int
	flip  byte
	hello *int // receives the size of the ClientHello in bytes
	wrote bool
}

func (c *damagedWrite) Write(p []byte) (int, error) {
	if !c.wrote {
		c.wrote = true
		*c.hello = len(p)
		p = append([]byte(nil), p...)
		if c.at < len(p) {
			p[c.at] ^= c.flip
		}
	}
	return c.Conn.Write(p)
}

// A byte of the ClientHello damaged in transit costs one attempt, and does not end the client.
func TestADamagedClientHelloDoesNotEndTheClient(t *testing.T) {
	for _, with := range engines {
		step := 31 // with -all one engine tries every byte; the others share its TLS and try a sample
		if with.name == "mqtt" && *all {
			step = 1
		}
		t.Run(with.name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) { flipTheClientHello(t, with, step) })
		})
	}
}

func flipTheClientHello(t *testing.T, with engine, step int) {
	hub, creds := with.openHub(t)
	base := with.inMemory(hub, true)
	base.TLS.CurvePreferences = []tls.CurveID{tls.X25519} // a short ClientHello

	flips, damaging, hello := 0, 0, 1
	for at := 0; at < hello; at += step {
		for _, flip := range []byte{1, 1 << (at % 8), 0xff} {
			w := *base
			dials := 0
			w.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := base.Dial(ctx, network, addr)
				if dials++; err != nil || dials > 1 {
					return c, err
				}
				return &damagedWrite{Conn: c, at: at, flip: flip, hello: &hello}, nil
			}
			c, err := device.New(creds, with.make(creds, &w), nil)
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			err = c.Open(ctx)
			cancel()
			require.NoError(t, err, "byte %d of %d, flip %#x", at, hello, flip)
			require.Equal(t, device.StateConnected, c.Status().State)
			if c.Stats().Attempts > 1 {
				damaging++
			}
			require.NoError(t, c.Close())
			flips++
		}
	}
	require.Greater(t, hello, 150, "the first write is a ClientHello")
	require.Positive(t, damaging)
	t.Logf("%d flips in a ClientHello of %d bytes, %d of them ended the first attempt", flips, hello, damaging)
}

// refusing answers each ClientHello with answer and closes the connection.
func refusing(dials *int, answer []byte) dialer {
	return func(context.Context, string, string) (net.Conn, error) {
		*dials++
		near, far := memconn.Pair("device:1", "hub:1")
		go func() { // ends with the connection
			defer far.Close()
			if _, err := far.Read(make([]byte, 4096)); err == nil {
				_, _ = far.Write(answer)
			}
		}()
		return near, nil
	}
}

// A server that refuses every ClientHello ends the client after a few attempts, with the Kind and
// the text of the alert.
func TestAServerThatRefusesTLSEndsTheClient(t *testing.T) {
	for _, refusal := range []struct {
		name   string
		answer []byte
		kind   transport.Kind
		text   string
	}{
		{"alert 70", []byte{21, 3, 3, 0, 2, 2, 70}, transport.Unsupported,
			": TLS handshake: remote error: tls: protocol version not supported; TLS version not supported"},
		{"not TLS", []byte("220 mail.example.test ESMTP\r\n"), transport.Protocol,
			": TLS handshake: tls: first record does not look like a TLS handshake; " +
				"the peer does not speak TLS: check host and port"},
	} {
		t.Run(refusal.name, func(t *testing.T) {
			withEachEngine(t, func(t *testing.T, with engine) {
				testkit.Bubble(t, func(t *testing.T) {
					creds := with.creds(t, "HostName=hub.example.test;DeviceId=dev-1;SharedAccessKey=c2VjcmV0c2VjcmV0c2VjcmV0")
					dials := 0
					w := &way{Dial: refusing(&dials, refusal.answer)}
					if with.next {
						creds.Sign, w.devices = nil, testbroker.NewCertAuthority("devices")
					}
					c, err := device.New(creds, with.make(creds, w), nil)
					require.NoError(t, err)
					defer func() { require.NoError(t, c.Close()) }()
					ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
					defer cancel()
					err = c.Open(ctx)
					require.ErrorIs(t, err, refusal.kind)
					require.ErrorContains(t, err, " dial: "+refusal.kind.String()+refusal.text)
					require.Equal(t, device.ReasonNotRetryable, c.Status().Reason)
					require.Equal(t, 1+errfilter.MaxDamage, dials)
				})
			})
		})
	}
}
