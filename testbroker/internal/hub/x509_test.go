package hub_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

func TestCertificatesOfDevices(t *testing.T) {
	var none time.Time
	own := func(name string) tls.Certificate { return testbroker.NewClientCert(name, none, none) }
	var root, stranger, between *testbroker.CertAuthority // made in each bubble, for its time
	var good, second tls.Certificate
	x := func(h *testbroker.Hub) (hubdata.Device, error) {
		return h.AddDeviceX509("dev-x", testbroker.Thumbprint(good.Leaf), testbroker.ThumbprintSHA1(second.Leaf))
	}
	ca := func(h *testbroker.Hub) (hubdata.Device, error) { return h.AddDeviceCA("dev-ca") }
	sas := func(h *testbroker.Hub) (hubdata.Device, error) { return h.Device("dev-1") }
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // the start of a bubble's clock

	for name, c := range map[string]struct {
		device func(h *testbroker.Hub) (hubdata.Device, error)
		cert   func() []tls.Certificate
		change func(c *hubtest.Connect, h *testbroker.Hub)
		want   byte
	}{
		"SHA-256":             {x, func() []tls.Certificate { return []tls.Certificate{good} }, nil, 0},
		"SHA-1":               {x, func() []tls.Certificate { return []tls.Certificate{second} }, nil, 0},
		"another certificate": {x, func() []tls.Certificate { return []tls.Certificate{own("dev-x")} }, nil, 5},
		"none":                {x, func() []tls.Certificate { return nil }, nil, 5},
		"signed by an authority": {ca,
			func() []tls.Certificate { return []tls.Certificate{root.NewClientCert("dev-ca", none, none)} }, nil, 0},
		"with a chain": {ca,
			func() []tls.Certificate { return []tls.Certificate{between.NewClientCert("dev-ca", none, none)} }, nil, 0},
		"chain is missing": {ca, func() []tls.Certificate {
			cert := between.NewClientCert("dev-ca", none, none)
			cert.Certificate = cert.Certificate[:1]
			return []tls.Certificate{cert}
		}, nil, 5},
		"unknown authority": {ca,
			func() []tls.Certificate { return []tls.Certificate{stranger.NewClientCert("dev-ca", none, none)} }, nil, 5},
		"self-signed": {ca, func() []tls.Certificate { return []tls.Certificate{own("dev-ca")} }, nil, 5},
		"common name of another": {ca,
			func() []tls.Certificate { return []tls.Certificate{root.NewClientCert("dev-x", none, none)} }, nil, 5},
		"common name in capitals": {ca,
			func() []tls.Certificate { return []tls.Certificate{root.NewClientCert("DEV-CA", none, none)} }, nil, 5},
		"expired": {ca, func() []tls.Certificate {
			return []tls.Certificate{root.NewClientCert("dev-ca", now.Add(-2*time.Hour), now.Add(-time.Hour))}
		}, nil, 5},
		"not yet valid": {ca, func() []tls.Certificate {
			return []tls.Certificate{root.NewClientCert("dev-ca", now.Add(time.Hour), now.Add(2*time.Hour))}
		}, nil, 5},
		"none for an authority": {ca, func() []tls.Certificate { return nil }, nil, 5},
		"token instead": {x, func() []tls.Certificate {
			return []tls.Certificate{good}
		}, func(c *hubtest.Connect, h *testbroker.Hub) {
			c.Password = hubtest.Sign("hub.example.test%2Fdevices%2Fdev-x", hubtest.GoldenKey, time.Now().Add(time.Hour).Unix())
		}, 5},
		"token of a policy": {x, func() []tls.Certificate { return nil }, func(c *hubtest.Connect, h *testbroker.Hub) {
			p := hubtest.AddPolicy(t, h, "device")
			c.Password = hubtest.Sign("hub.example.test", p.PrimaryKey, time.Now().Add(time.Hour).Unix()) + "&skn=device"
		}, 0},
		"disabled": {x, func() []tls.Certificate { return []tls.Certificate{good} },
			func(c *hubtest.Connect, h *testbroker.Hub) {
				require.NoError(t, h.SetEnabled("dev-x", false))
			}, 5},
		"of another hub": {x, func() []tls.Certificate {
			return []tls.Certificate{good}
		}, func(c *hubtest.Connect, h *testbroker.Hub) {
			c.User = strings.Replace(c.User, "hub.", "hub2.", 1)
		}, 5},
		"device with a key": {sas, func() []tls.Certificate {
			return []tls.Certificate{root.NewClientCert("dev-1", none, none)}
		}, nil, 5},
		"device with a key and its token": {sas,
			func() []tls.Certificate { return []tls.Certificate{good} }, func(c *hubtest.Connect, h *testbroker.Hub) {
				d := hubtest.Registered(t, h, "dev-1")
				c.Password = hubtest.Token(d)
			}, 0},
	} {
		hubtest.RunBubble(t, name, func(t *testing.T) {
			root, stranger = testbroker.NewCertAuthority("root"), testbroker.NewCertAuthority("root")
			between = root.NewAuthority("between").NewAuthority("further down")
			good, second = own("anything"), own("dev-x")
			h, _ := hubtest.NewHub(t, nil)
			require.NoError(t, h.AddCA(root.Cert()))
			d, err := c.device(h)
			require.NoError(t, err)
			con := hubtest.Certified(d)
			if c.change != nil {
				c.change(&con, h)
			}
			w := hubtest.DialTLS(t, h, c.cert()...)
			require.Equal(t, []byte{0, c.want}, w.Connect(con))
			if c.want != 0 {
				require.Equal(t, io.EOF, w.End())
				return
			}
			w.Ping()
		})
	}
}

func TestCertificateOfAModule(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
		root := testbroker.NewCertAuthority("root")
		require.NoError(t, h.AddCA(root.Cert()))
		m, err := h.AddDeviceCA("dev-1/m")
		require.NoError(t, err)
		require.Equal(t, "HostName=hub.example.test;DeviceId=dev-1;ModuleId=m;x509=true", m.ConnectionString())
		w := hubtest.DialTLS(t, h, root.NewClientCert("dev-1/m", time.Time{}, time.Time{}))
		require.Equal(t, []byte{0, 0}, w.Connect(hubtest.Certified(m)))
		w = hubtest.DialTLS(t, h, root.NewClientCert("dev-1", time.Time{}, time.Time{}))
		require.Equal(t, []byte{0, 5}, w.Connect(hubtest.Certified(m)))
	})
}

func TestCertificateWithoutTLS(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
		d, err := h.AddDeviceCA("dev-ca")
		require.NoError(t, err)
		require.Equal(t, []byte{0, 5}, hubtest.Dial(t, h).Connect(hubtest.Certified(d)))
	})
}

func TestRegistryOfCertificates(t *testing.T) {
	h, _ := hubtest.NewHub(t, nil)
	cert := testbroker.NewClientCert("x", time.Time{}, time.Time{})
	long, short := testbroker.Thumbprint(cert.Leaf), testbroker.ThumbprintSHA1(cert.Leaf)
	require.Len(t, long, 64)
	require.Len(t, short, 40)
	var colons []string
	for i := 0; i < len(short); i += 2 {
		colons = append(colons, strings.ToLower(short[i:i+2]))
	}
	d, err := h.AddDeviceX509("x", strings.Join(colons, ":"))
	require.NoError(t, err)
	require.Equal(t, "HostName=hub.example.test;DeviceId=x;x509=true", d.ConnectionString())
	require.Empty(t, d.PrimaryKey)
	require.Error(t, h.SetKeys("x", hubtest.GoldenKey, hubtest.GoldenKey))
	for _, c := range [][]string{nil, {long, short, long}, {""}, {"zz"}, {long[:62]}} {
		_, err = h.AddDeviceX509("y", c...)
		require.Error(t, err, "%q", c)
	}
	for _, id := range []string{"", "a b", "x/", "x/m/n", "nobody/m"} {
		_, err = h.AddDeviceX509(id, long)
		require.Error(t, err, id)
	}
	_, err = h.AddDeviceCA("x")
	require.ErrorIs(t, err, testbroker.ErrExists)
	require.Error(t, h.AddCA(cert.Leaf))
}

func TestCertificateOverRealPorts(t *testing.T) {
	h, _ := hubtest.NewHub(t, nil)
	cert := testbroker.NewClientCert("x", time.Time{}, time.Time{})
	d, err := h.AddDeviceX509("x", testbroker.Thumbprint(cert.Leaf))
	require.NoError(t, err)
	config := h.ClientTLS()
	config.Certificates = []tls.Certificate{cert}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(fmt.Sprintf("TLS %#x", version), func(t *testing.T) {
			config := config.Clone()
			config.MinVersion, config.MaxVersion = version, version
			addr := hubtest.Listen(t, h, testbroker.PortMQTTS)
			conn, err := tls.Dial("tcp", addr.String(), config)
			require.NoError(t, err)
			require.Equal(t, []byte{0, 0}, hubtest.NewWire(t, conn).Connect(hubtest.Certified(d)))
		})
	}
	t.Run("WebSocket", func(t *testing.T) {
		addr := hubtest.Listen(t, h, testbroker.PortHTTPS)
		dialer := websocket.Dialer{Subprotocols: []string{"mqtt"}, TLSClientConfig: config}
		ws, _, err := dialer.Dial("wss://"+addr.String()+"/$iothub/websocket", nil)
		require.NoError(t, err)
		require.Equal(t, []byte{0, 0}, hubtest.NewWire(t, &hubtest.WebConn{Conn: ws}).Connect(hubtest.Certified(d)))
	})
}

// handshake does an in-memory TLS handshake, with a time limit of a minute.
func handshake(t *testing.T, h *testbroker.Hub, config *tls.Config) error {
	raw := hubtest.DialPort(t, h, testbroker.PortMQTTS)
	defer raw.Close()
	require.NoError(t, raw.SetDeadline(time.Now().Add(time.Minute)))
	conn := tls.Client(raw, config)
	return conn.Handshake()
}

func TestFaultsOfTheHandshake(t *testing.T) {
	for _, c := range []struct {
		kind  fault.Kind
		check func(t *testing.T, err error)
	}{
		{fault.MuteHandshake, func(t *testing.T, err error) { require.ErrorContains(t, err, "timeout") }},
		{fault.NotTLS, func(t *testing.T, err error) {
			var wrong tls.RecordHeaderError
			require.ErrorAs(t, err, &wrong)
			require.Equal(t, "HTTP/", string(wrong.RecordHeader[:]))
		}},
		{fault.CutHandshake, func(t *testing.T, err error) { require.ErrorIs(t, err, io.ErrUnexpectedEOF) }},
		{fault.OldTLS, func(t *testing.T, err error) {
			require.ErrorContains(t, err, "remote error: tls: protocol version not supported")
		}},
		{fault.ExpiredCertificate, func(t *testing.T, err error) {
			var invalid x509.CertificateInvalidError
			require.ErrorAs(t, err, &invalid)
			require.Equal(t, x509.Expired, invalid.Reason)
		}},
	} {
		hubtest.RunBubble(t, c.kind.String(), func(t *testing.T) {
			var rec hubtest.Recorder
			h, d := hubtest.NewHub(t, &testbroker.Options{OnEvent: rec.Event})
			in := h.Inject(fault.Fault{Kind: c.kind, After: 1})
			require.NoError(t, handshake(t, h, h.ClientTLS()))
			synctest.Wait()
			_, seen := rec.Since(0)
			c.check(t, handshake(t, h, h.ClientTLS()))
			synctest.Wait()
			require.Equal(t, 1, in.Fired())
			events, _ := rec.Since(seen)
			require.Equal(t, "#2 fault "+c.kind.String(), events[0])
			require.Contains(t, events[1], "#2 refused: ")
			require.NoError(t, handshake(t, h, h.ClientTLS()), "it happened once")
			hubtest.Login(t, h, d).Ping()
		})
		t.Run(c.kind.String()+" on a real port", func(t *testing.T) {
			h, d := hubtest.NewHub(t, nil)
			addr := hubtest.Listen(t, h, testbroker.PortMQTTS)
			in := h.Inject(fault.Fault{Kind: c.kind})
			raw, err := net.Dial("tcp", addr.String())
			require.NoError(t, err)
			defer raw.Close()
			wait := 30 * time.Second
			if c.kind == fault.MuteHandshake { // no answer arrives, however long the client waits
				wait = 300 * time.Millisecond
			}
			require.NoError(t, raw.SetDeadline(time.Now().Add(wait)))
			c.check(t, tls.Client(raw, h.ClientTLS()).Handshake())
			require.NoError(t, in.WaitFired(t.Context(), 1))
			hubtest.RealTLS(t, h, addr, d).Ping()
		})
	}
}

func TestFaultOfTheHandshakeNeedsAHandshake(t *testing.T) {
	for _, k := range []fault.Kind{fault.NotTLS, fault.CutHandshake, fault.OldTLS,
		fault.ExpiredCertificate} {
		hubtest.RunInBubble(t, k.String(), nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			in := h.Inject(fault.Fault{Kind: k})
			h.Inject(fault.Fault{Kind: k, Device: "dev-1", Times: -1})
			hubtest.Login(t, h, d)
			raw := hubtest.DialPort(t, h, testbroker.PortMQTTS)
			raw.Close() // without sending anything
			synctest.Wait()
			require.Zero(t, in.Fired())
			require.Error(t, handshake(t, h, h.ClientTLS()))
			require.Equal(t, 1, in.Fired())
			require.NoError(t, handshake(t, h, h.ClientTLS()))
		})
	}
}

func TestOldTLSServesOldClients(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
		in := h.Inject(fault.Fault{Kind: fault.OldTLS})
		config := h.ClientTLS()
		config.MinVersion = tls.VersionTLS10
		require.NoError(t, handshake(t, h, config))
		require.Equal(t, 1, in.Fired())
	})
}

func TestHandshakeFaultsBelowAWebSocket(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
		in := h.Inject(fault.Fault{Kind: fault.CutHandshake})
		dialer := websocket.Dialer{NetDialContext: h.Dial(testbroker.PortHTTPS), TLSClientConfig: h.ClientTLS(),
			Subprotocols: []string{"mqtt"}}
		_, _, err := dialer.Dial("wss://hub/$iothub/websocket", nil)
		require.Error(t, err)
		require.Equal(t, 1, in.Fired())
		ws, _, err := dialer.Dial("wss://hub/$iothub/websocket", nil)
		require.NoError(t, err)
		ws.Close()
	})
}

// A hub has a second name for devices that speak TLS 1.3, over each protocol.
func TestTheNameForDevices(t *testing.T) {
	for own, other := range map[string]string{"hub.example.test": "hub.device.example.test",
		"hub.device.example.test": "hub.example.test"} {
		hubtest.InBubble(t, &testbroker.Options{HostName: own}, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			for _, name := range []string{own, other} {
				config := h.ClientTLS()
				config.ServerName, config.MinVersion = name, tls.VersionTLS13
				p := hubtest.NewPoster(t, h.Dial(testbroker.PortHTTPS), config,
					hubtest.Sign(name+"%2Fdevices%2Fdev-1", d.PrimaryKey, time.Now().Add(time.Hour).Unix()))
				p.Base = "https://" + name
				r := p.Post("/devices/dev-1/messages/events"+hubtest.Version, "x")
				require.Equal(t, 204, r.StatusCode, r.Text)
			}
			require.Equal(t, 2, h.Len())
		})
	}
}
