package hub_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

func TestHubNamedByItsIPAddress(t *testing.T) {
	h, _ := hubtest.NewHub(t, &testbroker.Options{HostName: "192.0.2.7"})
	addr := hubtest.Listen(t, h, testbroker.PortMQTTS)
	conn, err := tls.Dial("tcp", addr.String(), &tls.Config{RootCAs: h.RootCAs(), ServerName: "192.0.2.7"})
	require.NoError(t, err, "clients compare an address with the certificate's IP addresses only")
	require.NoError(t, conn.Close())
}

func TestRealTLS(t *testing.T) {
	h, d := hubtest.NewHub(t, nil)
	addr := hubtest.Listen(t, h, testbroker.PortMQTTS)
	w := hubtest.RealTLS(t, h, addr, d)
	w.Publish(1, hubtest.Events+"a=b", "over TLS")
	require.Equal(t, uint16(1), w.Acked())
	require.Equal(t, "over TLS", string(h.Messages()[0].Body))

	for name, server := range map[string]string{"localhost": "localhost", "address": "127.0.0.1"} {
		t.Run(name, func(t *testing.T) {
			conn, err := tls.Dial("tcp", addr.String(), &tls.Config{RootCAs: h.RootCAs(), ServerName: server})
			require.NoError(t, err)
			conn.Close()
		})
	}
	t.Run("CA in PEM", func(t *testing.T) {
		pool := x509.NewCertPool()
		require.True(t, pool.AppendCertsFromPEM(h.CAPEM()))
		conn, err := tls.Dial("tcp", addr.String(), &tls.Config{RootCAs: pool, ServerName: h.HostName()})
		require.NoError(t, err)
		conn.Close()
	})
	t.Run("CA not known", func(t *testing.T) {
		_, err := tls.Dial("tcp", addr.String(), &tls.Config{RootCAs: x509.NewCertPool(), ServerName: h.HostName()})
		var unknown x509.UnknownAuthorityError
		require.ErrorAs(t, err, &unknown)
	})
	t.Run("wrong host name", func(t *testing.T) {
		require.Error(t, h.PresentName("not a name"))
		require.NoError(t, h.PresentName("other.example.test"))
		_, err := tls.Dial("tcp", addr.String(), h.ClientTLS())
		var wrong x509.HostnameError
		require.ErrorAs(t, err, &wrong)
		require.NoError(t, h.PresentName(""))
		hubtest.RealTLS(t, h, addr, d)
	})
	t.Run("old TLS", func(t *testing.T) {
		c := h.ClientTLS()
		c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
		_, err := tls.Dial("tcp", addr.String(), c)
		require.Error(t, err)
	})
}

func TestCertificateOfAHubWhoseClockIsAhead(t *testing.T) {
	h, _ := hubtest.NewHub(t, &testbroker.Options{Now: func() time.Time { return time.Now().Add(24 * time.Hour) }})
	addr := hubtest.Listen(t, h, testbroker.PortMQTTS)
	conn, err := tls.Dial("tcp", addr.String(), h.ClientTLS())
	require.NoError(t, err)
	conn.Close()
}

func TestCutsOnRealSocketsAreResets(t *testing.T) {
	for _, secure := range []bool{false, true} {
		name := map[bool]string{false: "TCP", true: "TLS"}[secure]
		open := func(t *testing.T) (*testbroker.Hub, func() *hubtest.Wire) {
			h, d := hubtest.NewHub(t, nil)
			port := testbroker.PortMQTT
			if secure {
				port = testbroker.PortMQTTS
			}
			addr := hubtest.Listen(t, h, port)
			return h, func() *hubtest.Wire {
				if secure {
					return hubtest.RealTLS(t, h, addr, d)
				}
				w := hubtest.RealTCP(t, addr)
				require.Equal(t, []byte{0, 0}, w.Connect(hubtest.ConnectOf(d)))
				return w
			}
		}
		for _, c := range []struct {
			kind   fault.Kind
			stored int
		}{{fault.DropDuringPublish, 0}, {fault.DropBeforePublish, 0}, {fault.DropAfterPublish, 1},
			{fault.Absent, 0}} {
			t.Run(name+"/"+c.kind.String(), func(t *testing.T) {
				h, dial := open(t)
				w := dial()
				in := h.Inject(fault.Fault{Kind: c.kind})
				if c.kind != fault.Absent { // Absent needs no message, and a write would hide the error
					w.Send(hubtest.PublishBytes(2, 1, hubtest.Events, "x"))
				}
				require.ErrorIs(t, w.End(), syscall.ECONNRESET)
				require.NoError(t, in.WaitFired(t.Context(), 1))
				require.Equal(t, c.stored, h.Len())
				require.Equal(t, 1, in.Fired())
			})
		}
		t.Run(name+"/DropAfterPuback", func(t *testing.T) {
			h, dial := open(t)
			w := dial()
			in := h.Inject(fault.Fault{Kind: fault.DropAfterPuback})
			for id := range uint16(50) { // still sending when the hub sends its last packet
				w.Conn.Write(hubtest.PublishBytes(2, id+1, hubtest.Events, "x"))
			}
			require.Equal(t, uint16(1), w.Acked())
			end := w.End() // the hub takes for a second what still comes, and what comes later resets
			require.True(t, errors.Is(end, io.EOF) || errors.Is(end, syscall.ECONNRESET), "%v", end)
			w.Conn.Close()
			require.NoError(t, in.WaitFired(t.Context(), 1))
			require.Equal(t, 1, h.Len())
		})
		t.Run(name+"/refusal can be read", func(t *testing.T) {
			h, dial := open(t)
			dial()
			h.Inject(fault.Fault{Kind: fault.RefuseConnect, Code: 6})
			w := dialRaw(t, h, secure)
			d := hubtest.Registered(t, h, "dev-1")
			var all []byte // a client that does not wait for the CONNACK
			all = append(all, hubtest.ConnectOf(d).Bytes()...)
			for id := range uint16(50) {
				all = append(all, hubtest.PublishBytes(2, id+1, hubtest.Events, "x")...)
			}
			w.Send(all)
			require.Equal(t, []byte{0, 6}, w.Expect(hubtest.Connack))
			require.Equal(t, io.EOF, w.End())
		})
		t.Run(name+"/HalfOpen", func(t *testing.T) {
			h, dial := open(t)
			w := dial()
			in := h.Inject(fault.Fault{Kind: fault.HalfOpen})
			require.Equal(t, 1, in.Fired())
			w.Send([]byte{0xc0, 0})
			require.NoError(t, w.Conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
			_, _, err := w.Read()
			var ne net.Error
			require.ErrorAs(t, err, &ne)
			require.True(t, ne.Timeout())
			in.Remove()
			dial().Ping()
		})
	}
}

// dialRaw opens another port of the hub and connects to it. The handshake is done, and nothing is
// sent.
func dialRaw(t testing.TB, h *testbroker.Hub, secure bool) *hubtest.Wire {
	if !secure {
		addr := hubtest.Listen(t, h, testbroker.PortMQTT)
		return hubtest.RealTCP(t, addr)
	}
	addr := hubtest.Listen(t, h, testbroker.PortMQTTS)
	conn, err := tls.Dial("tcp", addr.String(), h.ClientTLS())
	require.NoError(t, err)
	require.NoError(t, conn.SetDeadline(time.Now().Add(hubtest.WaitLimit)))
	return hubtest.NewWire(t, conn)
}

func TestAbsentOnARealPort(t *testing.T) {
	h, d := hubtest.NewHub(t, nil)
	addr := hubtest.Listen(t, h, testbroker.PortMQTT)
	in := h.Inject(fault.Fault{Kind: fault.Absent})
	conn, err := net.Dial("tcp", addr.String())
	if err == nil { // the reset may come before or after Dial returns
		_, err = conn.Read(make([]byte, 1))
		conn.Close()
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.NoError(t, in.WaitFired(t.Context(), 1))
	in.Remove()
	w := hubtest.RealTCP(t, addr)
	require.Equal(t, []byte{0, 0}, w.Connect(hubtest.ConnectOf(d)))
}

func TestCloseOnRealSocketsIsQuick(t *testing.T) {
	h, d := hubtest.NewHub(t, nil)
	plain := hubtest.Listen(t, h, testbroker.PortMQTT)
	secure := hubtest.Listen(t, h, testbroker.PortMQTTS)
	ends := []*hubtest.Wire{
		hubtest.RealTLS(t, h, secure, d), // sends nothing more
		hubtest.RealTCP(t, plain),        // never sends a CONNECT
		hubtest.RealTCP(t, secure),       // never begins the handshake
	}
	stuck := hubtest.RealTCP(t, plain) // publishes and never reads
	other := hubtest.AddDevice(t, h, "dev-2")
	stuck.Send(hubtest.ConnectOf(other).Bytes())
	flood := make(chan struct{})
	go func() {
		defer close(flood)
		p := hubtest.PublishBytes(2, 1, "devices/dev-2/messages/events/", "x")
		for {
			if _, err := stuck.Conn.Write(p); err != nil {
				return
			}
		}
	}()
	require.NoError(t, h.WaitMessages(t.Context(), 1000))
	start := time.Now()
	require.NoError(t, h.Close())
	require.Less(t, time.Since(start), hubtest.WaitLimit/2)
	<-flood
	for _, w := range ends {
		_, _, err := w.Read()
		require.Error(t, err)
	}
	conn, err := net.DialTimeout("tcp", plain.String(), hubtest.WaitLimit)
	if err == nil {
		conn.Close() // another program has the port by now
	} else {
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
	}
}

func TestListenErrors(t *testing.T) {
	h, _ := hubtest.NewHub(t, nil)
	addr := hubtest.Listen(t, h, testbroker.PortMQTT)
	_, err := h.Listen(testbroker.PortMQTTS, addr.String())
	require.ErrorIs(t, err, syscall.EADDRINUSE)
}

func TestTLSInABubble(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		open := func() *hubtest.Wire {
			raw := hubtest.DialPort(t, h, testbroker.PortMQTTS)
			conn := tls.Client(raw, h.ClientTLS())
			require.NoError(t, conn.HandshakeContext(t.Context()))
			w := hubtest.NewWire(t, conn)
			require.Equal(t, []byte{0, 0}, w.Connect(hubtest.ConnectOf(d)))
			return w
		}
		w := open()
		w.Publish(1, hubtest.Events, "x")
		w.Acked()
		h.Inject(fault.Fault{Kind: fault.DropAfterPublish})
		w.Publish(2, hubtest.Events, "x")
		require.ErrorIs(t, w.End(), syscall.ECONNRESET)
		w = open()
		h.Inject(fault.Fault{Kind: fault.DropAfterPuback})
		w.Publish(3, hubtest.Events, "x")
		require.Equal(t, uint16(3), w.Acked())
		require.Equal(t, io.EOF, w.End())

		in := h.Inject(fault.Fault{Kind: fault.HalfOpen})
		raw := hubtest.DialPort(t, h, testbroker.PortMQTTS)
		defer raw.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		require.ErrorIs(t, tls.Client(raw, h.ClientTLS()).HandshakeContext(ctx), context.DeadlineExceeded)
		require.Equal(t, 1, in.Fired(), "the new one; the old ones are over")
	})
}
