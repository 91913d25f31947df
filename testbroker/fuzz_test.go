package testbroker_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/testbroker"
)

func FuzzParseBag(f *testing.F) {
	for _, s := range []string{
		"", "/", "a=b", "a=b/", "%24.mid=m-1&$.ct=application%2Fjson&level=high%20temp", "a", "a=", "=", "&", "a=%", "a=%ff",
		"a+b=c+d", "%00=%00", "a=b=c", "h%C3%B6he=%E2%82%AC", "//",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		all, err := testbroker.ParseBag(s)
		if err != nil {
			return
		}
		// What was read, written in full, reads the same.
		text := escaped(all)
		again, err := testbroker.ParseBag(text)
		if err != nil || len(again) != len(all) {
			t.Fatalf("%q read as %v, written as %q, read as %v, %v", s, all, text, again, err)
		}
		for i := range all {
			if again[i] != all[i] || all[i].Name == "" {
				t.Fatalf("%q: %v became %v", s, all[i], again[i])
			}
		}
		if m, err := testbroker.ParseTelemetry("d", "m", "devices/d/modules/m/messages/events/"+s); err != nil ||
			len(m.System)+len(m.Properties) != len(all) {
			t.Fatalf("%q as a topic: %v, %v", s, m, err)
		}
	})
}

// escaped writes a bag with every byte encoded.
func escaped(all []testbroker.Property) string {
	const hex = "0123456789abcdef"
	var b strings.Builder
	put := func(s string) {
		for i := range len(s) {
			b.WriteString("%" + string(hex[s[i]>>4]) + string(hex[s[i]&15]))
		}
	}
	for i, p := range all {
		if i > 0 {
			b.WriteByte('&')
		}
		put(p.Name)
		b.WriteByte('=')
		put(p.Value)
	}
	return b.String()
}

func FuzzParseUserName(f *testing.F) {
	for _, s := range []string{
		"hub/dev", "hub/dev/", "hub/dev/?api-version=2021-04-12", "hub/dev/api-version=2020-09-30",
		"hub/dev/mod/?api-version=2021-04-12&DeviceClientType=Hubline%2F1.0",
		"hub/dev/mod", "hub/dev/?model-id=dtmi:com:example:Thermostat;1&DeviceClientType=a/b", "", "/", "//", "hub//",
		"hub/dev/?api-version=%zz",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		host, device, module, params, err := testbroker.ParseUserName(s)
		if err != nil {
			return
		}
		if host == "" || device == "" || len(device) > 128 || len(module) > 128 || strings.ContainsAny(host+device+module,
			"/") {
			t.Fatalf("%q read as %q %q %q", s, host, device, module)
		}
		text := host + "/" + device + "/"
		if module != "" {
			text += module + "/"
		}
		text += "?"
		for _, p := range params {
			text += p.Name + "=" + url.PathEscape(p.Value) + "&"
		}
		h, d, m, _, err := testbroker.ParseUserName(text)
		if err != nil || h != host || d != device || m != module {
			t.Fatalf("%q written as %q, read as %q %q %q, %v", s, text, h, d, m, err)
		}
	})
}

func FuzzParseToken(f *testing.F) {
	for _, s := range []string{
		"SharedAccessSignature " +
			"sr=hub1.example.test%2Fdevices%2Fdev-1&sig=D3YPCbjg9OEBgbkWVCXmOeKhVVkbOo7jR%2BVPYEFxF5w%3D&se=1893456000",
		"SharedAccessSignature " +
			"sr=hub1.example.test&sig=jqevsbxyY%2BOSlaPjzWQE4xd83NR3tgaQfh7sJnadmj8%3D&se=1893456000&skn=device",
		"sharedaccesssignature se=0&sig=YQ%3D%3D&sr=a%252Fb&skn=", "", "SharedAccessSignature ",
		"SharedAccessSignature sr=&sig=&se=", "SharedAccessSignature sr=%zz&sig=YQ%3D%3D&se=99999999999999999999",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		resource, sig, expires, _, err := testbroker.ParseToken(s)
		if err != nil {
			if testbroker.TokenCovers(s, "hub1.example.test", "dev-1", "") {
				t.Fatalf("%q is no token, yet covers a device", s)
			}
			return
		}
		if resource == "" || len(sig) == 0 || expires < 0 || !strings.Contains(s, resource) {
			t.Fatalf("%q read as %q %x %d", s, resource, sig, expires)
		}
		if testbroker.TokenCovers(s, "hub1.example.test", "dev-1", "") && !testbroker.TokenCovers(s, "hub1.example.test",
			"dev-1", "mod-1") {
			t.Fatalf("%q covers a device but not its module", s)
		}
	})
}

// FuzzFramer splits a stream at two places: the packets found must be the same, and a torn one
// never passes whole.
func FuzzFramer(f *testing.F) {
	f.Add([]byte{0xc0, 0, 0x32, 5, 0, 1, 'a', 0, 1, 0xc0, 0}, 3, 4, 2)
	f.Add(bytes.Repeat([]byte{0x30, 0x80, 1}, 100), 1, 2, 1)
	f.Add([]byte{0x30, 0xff, 0xff, 0xff, 0xff, 0xff}, 0, 3, 1)
	f.Add([]byte{0x30, 0, 0x30, 0}, 1, 1, 2)
	f.Fuzz(func(t *testing.T, stream []byte, i, j, tear int) {
		if len(stream) == 0 {
			return
		}
		i, j = min(max(i, 0), len(stream)), min(max(j, 0), len(stream))
		i, j = min(i, j), max(i, j)
		whole, all := testbroker.Packets([][]byte{stream}, 0)
		split, passed := testbroker.Packets([][]byte{stream[:i], stream[i:j], stream[j:]}, 0)
		if !bytes.Equal(whole, split) || all != len(stream) || passed != len(stream) {
			t.Fatalf("%x split at %d and %d: packets %x and %x, %d bytes passed", stream, i, j, whole, split, passed)
		}
		first, passed := testbroker.Packets([][]byte{stream[:i], stream[i:j], stream[j:]}, tear)
		if tear >= 1 && tear < len(whole) && (len(first) != tear || passed >= len(stream)) {
			t.Fatalf("%x: packet %d was not torn: %x, %d bytes passed", stream, tear, first, passed)
		}
	})
}

// FuzzCommandTopic writes the topic of a command, which must be one that a client may be sent, and
// reads it as a client would.
func FuzzCommandTopic(f *testing.F) {
	f.Add("dev-1", "", "m-1", "application/json;charset=utf-8", "color", "blue")
	f.Add("a:b@c$d", "m", "", "", "a b&=%/+#?", "")
	f.Add("d", "", "\x00\xff", "ü", "$.mid", "%24")
	f.Fuzz(func(t *testing.T, device, module, id, kind, name, value string) {
		m := testbroker.C2D{MessageID: id, ContentType: kind, Properties: []testbroker.Property{{Name: name, Value: value}}}
		head := "devices/" + device
		if module != "" {
			head += "/modules/" + module
		}
		bag, ok := strings.CutPrefix(testbroker.CommandTopic(device, module, m), head+"/messages/devicebound/")
		if !ok || !strings.HasPrefix(bag, "%24.to=%2F") || strings.ContainsAny(bag, "+#$/\x00") {
			t.Fatalf("bag %q", bag)
		}
		got := make(map[string]string)
		last := ""
		for pair := range strings.SplitSeq(bag, "&") {
			k, v, ok := strings.Cut(pair, "=")
			key, err1 := url.PathUnescape(k)
			text, err2 := url.PathUnescape(v)
			if !ok || err1 != nil || err2 != nil {
				t.Fatalf("pair %q: %v, %v", pair, err1, err2)
			}
			got[key], last = text, key+"="+text
		}
		if name != "$.mid" && got["$.mid"] != id || name != "$.ct" && got["$.ct"] != kind || last != name+"="+value {
			t.Fatalf("%+v became %q, read as %v", m, bag, got)
		}
	})
}

func FuzzReadOrder(f *testing.F) {
	f.Add("killtcp", "boom", "1", "5")
	f.Add("KillAmqpc2dLink", "", "", "")
	f.Add("InvokeThrottling", "20", "99999999999999999999", "-1")
	f.Fuzz(func(t *testing.T, kind, reason, delay, duration string) {
		m := testbroker.Message{DeviceID: "d", Properties: []testbroker.Property{
			{Name: "AzIoTHub_FaultOperationType", Value: kind}, {Name: "AzIoTHub_FaultOperationCloseReason", Value: reason},
			{Name: "AzIoTHub_FaultOperationDelayInSecs", Value: delay}, {Name: "AzIoTHub_FaultOperationDurationInSecs",
				Value: duration},
		}}
		o, ok := testbroker.ReadOrder(m)
		if !ok {
			return
		}
		if !strings.EqualFold(o.Type, kind) || o.Reason != reason || o.Delay < 0 || o.Duration < 0 ||
			o.Delay%time.Second != 0 || o.Happened {
			t.Fatalf("%q %q %q %q read as %+v", kind, reason, delay, duration, o)
		}
	})
}

func FuzzParseThumbprint(f *testing.F) {
	f.Add("AB:cd")
	f.Add(strings.Repeat("0a", 20))
	f.Add(strings.Repeat("F0:", 31) + "F0")
	f.Fuzz(func(t *testing.T, s string) {
		digest, err := testbroker.ParseThumbprint(s)
		if err == nil && (len(digest) != 20 && len(digest) != 32 || !strings.EqualFold(hex.EncodeToString([]byte(digest)),
			strings.ReplaceAll(s,
				":", ""))) {
			t.Fatalf("%q read as %x", s, digest)
		}
	})
}

// FuzzWebSocket sends bytes to the place where a request for a WebSocket is expected, and then into
// a WebSocket: the hub must end the connection or wait for more, and serve others.
func FuzzWebSocket(f *testing.F) {
	const request = "GET /$iothub/websocket HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: " +
		"websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: " +
		"mqtt\r\n\r\n"
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), false)
	f.Add([]byte{0x82, 0x82, 0, 0, 0, 0, 0xc0, 0}, true)
	f.Add([]byte{0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}, true)
	f.Add([]byte{0x88, 0x80, 0, 0, 0, 0}, true)
	f.Fuzz(func(t *testing.T, p []byte, upgraded bool) {
		h, err := testbroker.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		conn, err := h.Dial(testbroker.PortHTTP)(t.Context(), "tcp", "hub")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if upgraded {
			p = append([]byte(request), p...)
		}
		conn.Write(p)
		conn.(interface{ CloseWrite() error }).CloseWrite()
		conn.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
	})
}
