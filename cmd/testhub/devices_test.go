package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
)

// A device that was added over the control API connects. A reset removes it.
func TestDevicesOfTheControlAPI(t *testing.T) {
	p := start(t, "-device", "dev-1")
	made := p.good("POST", "/devices", `{"id":"dev-2","modules":[{"id":"cam"}]}`)
	require.Equal(t, "dev-2", made["device"])
	module := made["modules"].([]any)[0].(map[string]any)
	require.Equal(t, "dev-2/cam", module["device"])
	for _, v := range []any{made["connectionString"], module["connectionString"]} {
		creds, err := device.ParseConnectionString(v.(string))
		require.NoError(t, err)
		c, err := device.New(creds, transports["mqtt"](p), quick())
		require.NoError(t, err)
		require.NoError(t, c.Open(soon(t)))
		require.NoError(t, c.Close())
	}
	p.good("POST", "/devices", `{"id":"dev-2/mic"}`)
	p.good("DELETE", "/devices/dev-2%2Fmic", "")
	p.good("POST", "/devices/dev-1/disable", "")
	require.Equal(t, []any{
		map[string]any{"device": "dev-1", "connections": 0.0, "enabled": false, "authentication": "key"},
		map[string]any{"device": "dev-2", "connections": 0.0, "enabled": true, "authentication": "key"},
		map[string]any{"device": "dev-2/cam", "connections": 0.0, "enabled": true, "authentication": "key"},
	}, settled(p)["devices"])
	require.Equal(t, "dev-2", p.good("DELETE", "/devices/dev-2", "")["device"])
	require.Len(t, p.good("GET", "/devices", "")["devices"], 1)

	p.good("POST", "/devices", `{"id":"dev-3","thumbprints":["`+strings.Repeat("ab", 32)+`"]}`)
	all := p.good("GET", "/devices", "")["devices"].([]any)
	require.Equal(t, "certificate", all[1].(map[string]any)["authentication"])
	p.good("POST", "/reset", "")
	require.Len(t, p.good("GET", "/devices", "")["devices"], 1)
}

// settled waits until no device is connected, and lists the devices.
func settled(p *program) map[string]any {
	for _, id := range []string{"dev-2", "dev-2%2Fcam"} {
		p.good("GET", "/devices/"+id+"/wait?connections=0", "")
	}
	return p.good("GET", "/devices", "")
}

// A module that is refused takes the device with which it came along.
func TestAddedDevicesAreAllOrNone(t *testing.T) {
	p := start(t, "-mqtt", "off", "-amqp", "off", "-https", "off")
	p.refused(400, "POST", "/devices", `{"id":"dev-9","modules":[{"id":"a"},{"id":"b c"}]}`)
	require.Equal(t, "dev-1", p.good("GET", "/devices", "")["devices"].([]any)[0].(map[string]any)["device"])
	require.Len(t, p.good("GET", "/devices", "")["devices"], 1)
}

// A change of a twin with an etag overwrites no change of somebody else.
func TestTwinChangesWithAnETag(t *testing.T) {
	p := start(t, "-mqtt", "off", "-amqp", "off", "-https", "off")
	const twin = "/devices/dev-1/twin"
	change := func(method, part, etag, body string) (int, map[string]any) {
		r, err := http.NewRequestWithContext(soon(t), method, p.ready.Control+twin+part, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("If-Match", etag)
		return p.send(r)
	}
	old := p.good("GET", twin, "")["etag"].(string)
	status, now := change("PUT", "/desired", `"`+old+`"`, `{"a":1}`)
	require.Equal(t, 200, status)
	for _, part := range []string{"/desired", "/tags"} {
		for _, method := range []string{"PUT", "PATCH"} {
			status, answer := change(method, part, `"`+old+`"`, `{"b":2}`)
			require.Equal(t, 412, status, answer)
			require.Equal(t, "If-Match", answer["error"].(map[string]any)["field"])
		}
	}
	require.Equal(t, map[string]any{"a": 1.0}, p.good("GET", twin, "")["desired"])
	status, now = change("PUT", "/tags", now["etag"].(string), `{"site":"roof"}`)
	require.Equal(t, 200, status, now)
	status, now = change("PUT", "/tags", "*", `{"floor":2}`)
	require.Equal(t, 200, status, now)
	require.Equal(t, map[string]any{"floor": 2.0}, now["tags"])
	require.Equal(t, 2.0, now["desiredVersion"])
}

// Each command of an access makes a message arrive, with the programs that this machine has. A hub
// offers only commands that it can serve.
func TestCommandsOfAnAccess(t *testing.T) {
	for name, c := range map[string]struct {
		flags   []string
		device  string
		clients []string
	}{
		"device": {[]string{"-device", "it's"}, "it's", []string{"curl", "mosquitto_pub", "hubline", "node"}},
		"module": {[]string{"-device", "dev-1/cam"}, "dev-1/cam", []string{"curl", "mosquitto_pub", "hubline", "node"}},
		"certificate": {[]string{"-x509", "dev-1=" + strings.Repeat("ab", 32)}, "dev-1",
			[]string{"curl", "mosquitto_pub", "hubline"}},
		"broker":        {[]string{"-broker", "-device", "dev-1"}, "dev-1", []string{"mosquitto_pub", "hubline"}},
		"broker module": {[]string{"-broker", "-device", "dev-1/cam"}, "dev-1/cam", []string{"mosquitto_pub", "hubline"}},
		"profile":       {[]string{"-profile", "mqttV5", "-device", "dev-1"}, "dev-1", []string{"hubline"}},
		"gateway":       {[]string{"-gateway", "localhost", "-device", "dev-1"}, "dev-1", []string{"hubline"}},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.HasSuffix(name, "module") {
				c.flags = append([]string{"-device", "dev-1"}, c.flags...)
			}
			p := start(t, c.flags...)
			var a access
			raw, err := json.Marshal(p.good("GET", "/devices/"+url.PathEscape(c.device)+"/access", ""))
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(raw, &a))
			var clients []string
			for _, command := range a.Commands {
				clients = append(clients, command.Client)
				require.NotContains(t, command.Line, "{module}")
				_, err := exec.LookPath(command.Client)
				if err != nil || command.Client == "hubline" || command.Client == "node" || name == "certificate" {
					continue // the last needs files of the user
				}
				out, err := exec.CommandContext(soon(t), "sh", "-c", command.Line).CombinedOutput()
				require.NoError(t, err, "%s\n%s", command.Line, out)
				p.printed(func(l line) bool { return l.Event == "message" && l.Device == c.device })
			}
			require.Equal(t, c.clients, clients)
		})
	}
}
