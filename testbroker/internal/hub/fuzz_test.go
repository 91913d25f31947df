package hub_test

import (
	"encoding/hex"
	"net/url"
	"strings"
	"testing"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// FuzzC2DTopic writes the topics of a C2D message and of a message to an input, checks that they
// may be sent to a client, and reads them as a client would.
func FuzzC2DTopic(f *testing.F) {
	f.Add("dev-1", "", "m-1", "application/json;charset=utf-8", "color", "blue")
	f.Add("a:b@c$d", "m", "", "", "a b&=%/+#?", "")
	f.Add("d", "", "\x00\xff", "ü", "$.mid", "%24")
	f.Fuzz(func(t *testing.T, device, module, id, kind, name, value string) {
		m := hubdata.C2D{MessageID: id, ContentType: kind, Properties: []hubdata.Property{{Name: name, Value: value}}}
		head := "devices/" + device
		if module != "" {
			head += "/modules/" + module
		}
		bag, ok := strings.CutPrefix(hub.C2DTopic(device, module, m), head+"/messages/devicebound/")
		if !ok || !strings.HasPrefix(bag, "%24.to=%2F") || strings.ContainsAny(bag, "+#$/\x00") {
			t.Fatalf("bag %q", bag)
		}
		got, _, last := readBag(t, bag)
		if name != "$.mid" && got["$.mid"] != id || name != "$.ct" && got["$.ct"] != kind || last != name+"="+value {
			t.Fatalf("%+v became %q, read as %v", m, bag, got)
		}

		m.UserID, m.ConnectionModuleID = value, "sender"
		bag, ok = strings.CutPrefix(hub.InputTopic(device, module, "in", m), head+"/inputs/in/")
		if !ok || strings.ContainsAny(bag, "+#$/\x00") {
			t.Fatalf("bag %q", bag)
		}
		got, first, _ := readBag(t, bag)
		if first != name+"="+value || got["$.mid"] != id && id != "" || got["$.uid"] != value && value != "" ||
			got["$.cmid"] != "sender" {
			t.Fatalf("%+v became %q, read as %v", m, bag, got)
		}
	})
}

// readBag returns the properties of a bag, and its first and last pair.
func readBag(t *testing.T, bag string) (got map[string]string, first, last string) {
	got = make(map[string]string)
	for pair := range strings.SplitSeq(bag, "&") {
		k, v, ok := strings.Cut(pair, "=")
		key, err1 := url.PathUnescape(k)
		text, err2 := url.PathUnescape(v)
		if !ok || err1 != nil || err2 != nil {
			t.Fatalf("pair %q: %v, %v", pair, err1, err2)
		}
		got[key], last = text, key+"="+text
		if len(got) == 1 && first == "" {
			first = last
		}
	}
	return got, first, last
}

func FuzzParseThumbprint(f *testing.F) {
	f.Add("AB:cd")
	f.Add(strings.Repeat("0a", 20))
	f.Add(strings.Repeat("F0:", 31) + "F0")
	f.Fuzz(func(t *testing.T, s string) {
		digest, err := hub.ParseThumbprint(s)
		if err == nil && (len(digest) != 20 && len(digest) != 32 || !strings.EqualFold(hex.EncodeToString([]byte(digest)),
			strings.ReplaceAll(s,
				":", ""))) {
			t.Fatalf("%q read as %x", s, digest)
		}
	})
}
