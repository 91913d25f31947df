package mqttfront_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/mqttfront"
)

func FuzzParseBag(f *testing.F) {
	for _, s := range []string{
		"", "/", "a=b", "a=b/", "%24.mid=m-1&$.ct=application%2Fjson&level=high%20temp", "a", "a=", "=", "&", "a=%", "a=%ff",
		"a+b=c+d", "%00=%00", "a=b=c", "h%C3%B6he=%E2%82%AC", "//",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		all, err := mqttfront.ParseBag(s)
		if err != nil {
			return
		}
		// The parsed properties, encoded in full, parse to the same.
		text := escaped(all)
		again, err := mqttfront.ParseBag(text)
		if err != nil || len(again) != len(all) {
			t.Fatalf("%q read as %v, written as %q, read as %v, %v", s, all, text, again, err)
		}
		for i := range all {
			if again[i] != all[i] || all[i].Name == "" {
				t.Fatalf("%q: %v became %v", s, all[i], again[i])
			}
		}
		if m, err := mqttfront.ParseTelemetry("d", "m", "devices/d/modules/m/messages/events/"+s); err != nil ||
			len(m.System)+len(m.Properties) != len(all) {
			t.Fatalf("%q as a topic: %v, %v", s, m, err)
		}
	})
}

// escaped encodes a bag with every byte percent-encoded.
func escaped(all []hubdata.Property) string {
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
		host, device, module, params, err := mqttfront.ParseUserName(s)
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
		h, d, m, _, err := mqttfront.ParseUserName(text)
		if err != nil || h != host || d != device || m != module {
			t.Fatalf("%q written as %q, read as %q %q %q, %v", s, text, h, d, m, err)
		}
	})
}

func FuzzRequestTopic(f *testing.F) {
	for _, s := range []string{
		"$iothub/twin/GET/?$rid=1", "$iothub/twin/PATCH/properties/reported/?$rid=a-b&$version=7",
		"$iothub/methods/res/200/?$rid=1f", "$iothub/methods/res/-1/?x=y&$rid=2",
		"$iothub/twin/GET/", "$iothub/methods/res/", "$iothub/methods/res/1?$rid=1", "$iothub/twin/GET/?&&=&$rid==",
		"$iothub/twin/PATCH/properties/reported/?$version=-1&$rid=1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		op, rid, version, status, err := mqttfront.ParseRequestTopic(s)
		if err != nil {
			return
		}
		if rid == "" || version < 0 || !strings.Contains(s, "$rid="+rid) {
			t.Fatalf("%q read as %v %q %d %d", s, op, rid, version, status)
		}
		if (op == hubdata.TwinAny) != strings.HasPrefix(s, "$iothub/methods/res/") || op != hubdata.TwinAny &&
			status != 0 {
			t.Fatalf("%q read as %v with status %d", s, op, status)
		}
	})
}
