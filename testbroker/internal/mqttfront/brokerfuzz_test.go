package mqttfront_test

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// FuzzBroker sends bytes to a plain broker, before and after the CONNECT: the broker must end the
// connection or wait for more, keep its promises about what it stored, and serve other connections.
func FuzzBroker(f *testing.F) {
	for _, all := range packets.TPacketData {
		for _, p := range all {
			f.Add(p.RawBytes, true, true)
			f.Add(p.RawBytes, false, false)
		}
	}
	f.Fuzz(func(t *testing.T, p []byte, five, connected bool) {
		h, d := newBroker(t, &testbroker.BrokerOptions{TopicAliases: 2, ReceiveMaximum: 3, CommandQoS: 2})
		version := byte(4)
		if five {
			version = 5
		}
		c := dialPlain(t, h, version)
		if connected {
			c.send(plainConnect(d, version))
		}
		c.write(p)
		c.conn.(interface{ CloseWrite() error }).CloseWrite()
		c.conn.SetReadDeadline(time.Now().Add(hubtest.WaitLimit))
		if _, err := io.Copy(io.Discard, c.conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
		for _, m := range h.Messages() {
			if m.DeviceID != "dev-1" || m.QoS > 1 || m.QoS == 0 && m.Dup || !strings.HasPrefix(m.Topic, "devices/dev-1/up") {
				t.Errorf("%+v", m)
			}
		}
		loginPlain(t, h, d, version).ping()
	})
}
