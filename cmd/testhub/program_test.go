package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// write makes a file in a directory of the test.
func write(t testing.TB, name, content string) string {
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// An error is one line that names the flag, or the position in the file, and the fix.
func TestErrorsNameTheWrongInput(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	at := taken.Addr().String()
	secret := base64.StdEncoding.EncodeToString([]byte("too short"))
	file := func(content string) []string { return []string{"-devices", write(t, "hub.json", content)} }
	for name, c := range map[string]struct {
		args   []string
		status int
		want   []string
	}{
		"no such flag":           {[]string{"-mqttt", "x"}, 2, []string{"flag -mqttt: there is none; the nearest is -mqtt,"}},
		"nothing like a flag":    {[]string{"-logg"}, 2, []string{"flag -logg: there is none; -h lists them all"}},
		"no number":              {[]string{"-keep", "x"}, 2, []string{`"x" for flag -keep`, "-h describes"}},
		"no value":               {[]string{"-keep"}, 2, []string{"-keep", "-h describes"}},
		"an argument":            {[]string{"dev-1"}, 2, []string{`"dev-1"`, "-h"}},
		"an address":             {[]string{"-amqp", "5671"}, 2, []string{"-amqp", `"5671"`, "host:port"}},
		"a control port":         {[]string{"-control", "0.0.0.0"}, 2, []string{"-control", "127.0.0.1:0"}},
		"a short token":          {[]string{"-control-token", "short"}, 2, []string{"-control-token", "16"}},
		"no CA":                  {[]string{"-ca", ""}, 2, []string{"-ca", "file"}},
		"x509 without =":         {[]string{"-x509", "dev-1"}, 2, []string{"-x509", "id=thumbprint"}},
		"a thumbprint":           {[]string{"-x509", "dev-1=abc"}, 2, []string{"-x509", "dev-1"}},
		"a port taken, mqtt":     {[]string{"-mqtt", at}, 1, []string{"-mqtt", at, "taken", ":0"}},
		"a port taken, https":    {[]string{"-https", at}, 1, []string{"-https", at, "taken"}},
		"a port taken, control":  {[]string{"-control", at}, 1, []string{"-control", at, "taken"}},
		"another machine":        {[]string{"-mqtt", "192.0.2.1:0"}, 1, []string{"-mqtt", "192.0.2.1:0"}},
		"no partitions":          {[]string{"-partitions", "0"}, 2, []string{"-partitions", "1 to 32"}},
		"too many partitions":    {[]string{"-partitions", "33"}, 2, []string{"-partitions", "1 to 32"}},
		"no number of connects":  {[]string{"-connects-per-second", "-1"}, 2, []string{"-connects-per-second", "up to 1e9"}},
		"no such limit":          {[]string{"-messages-per-second", "5", "-broker"}, 2, []string{"leave out -broker"}},
		"a host name":            {[]string{"-host", "a b"}, 2, []string{"-host", "letters"}},
		"a device":               {[]string{"-device", "a b"}, 2, []string{"-device", `"a b"`}},
		"a device twice":         {[]string{"-device", "a", "-device", "a"}, 2, []string{"-device", "exists"}},
		"a module alone":         {[]string{"-device", "a/b"}, 2, []string{"-device", "a/b"}},
		"the CA's directory":     {[]string{"-ca", "/nowhere/at/all.pem"}, 1, []string{"-ca", "directory"}},
		"the file for shells":    {[]string{"-env", "/nowhere/at/all.env"}, 1, []string{"-env", "directory"}},
		"no URL to ask":          {[]string{"-health", ""}, 2, []string{"-health", "empty"}},
		"a state of no name":     {[]string{"-state", ""}, 2, []string{"-state", "empty"}},
		"no such profile":        {[]string{"-profile", "v5"}, 2, []string{"-profile", "want classic or mqttV5"}},
		"a profile of no hub":    {[]string{"-profile", "b=mqttV5", "-dps"}, 2, []string{"-profile", "add -link b"}},
		"a profile and a broker": {[]string{"-profile", "mqttV5", "-broker"}, 2, []string{"leave out -broker or -profile"}},
		"a profile and modules":  {[]string{"-profile", "mqttV5", "-module", "a/b"}, 2, []string{"leave out -gateway"}},
		"topics without one":     {[]string{"-topic", "a/b"}, 2, []string{"-topic", "add -profile mqttV5"}},
		"a reserved topic":       {[]string{"-profile", "mqttV5", "-topic", "ih/b"}, 2, []string{"-topic", `"ih/b"`}},
		"a route of no filter":   {[]string{"-profile", "mqttV5", "-route", "a#"}, 2, []string{"-route", `"a#"`}},
		"a scope alone":          {[]string{"-scope", "x"}, 2, []string{"-scope", "-dps"}},
		"a port of no service":   {[]string{"-dps-mqtt", "127.0.0.1:0"}, 2, []string{"-dps-mqtt", "-dps"}},
		"a second hub alone":     {[]string{"-link", "x"}, 2, []string{"-link", "-dps"}},
		"a hub twice":            {[]string{"-dps", "-link", "LOCALHOST"}, 2, []string{"-link", "LOCALHOST", "-host"}},
		"a hub with a port":      {[]string{"-dps", "-link", "x=127.0.0.1:1"}, 2, []string{"-link", "ip"}},
		"a hub's name":           {[]string{"-dps", "-link", "a b"}, 2, []string{"-link", "letters"}},
		"a hub's address":        {[]string{"-dps", "-link", "x=192.0.2.1"}, 1, []string{"-link", "192.0.2.1", "address"}},
		"a service's address":    {[]string{"-dps", "-dps-amqp", "5671"}, 2, []string{"-dps-amqp", "host:port"}},
		"a port taken, dps":      {[]string{"-dps", "-dps-https", at}, 1, []string{"-dps-https", at, "taken"}},
		"a service's delay":      {[]string{"-dps", "-dps-retry-after", "1.5s"}, 2, []string{"-dps-retry-after", "seconds"}},
		"a service's name":       {[]string{"-dps", "-dps-host", "a b"}, 2, []string{"-dps-host", "letters"}},
		"a scope":                {[]string{"-dps", "-scope", "a_b"}, 2, []string{"-scope", "letters"}},
		"an enrollment":          {[]string{"-enroll", "a b"}, 2, []string{"-enroll", `"a b"`, "ID"}},
		"a TPM":                  {[]string{"-tpm", "a=?"}, 2, []string{"-tpm", "base64"}},
		"a TPM without an id":    {[]string{"-tpm", "=AAAA"}, 2, []string{"-tpm", "id=key"}},
		"a TPM's key":            {[]string{"-tpm", "a=AAAA"}, 2, []string{"-tpm", `"a"`, "EndorsementKey", "TPM2B_PUBLIC"}},
		"an enrollment twice":    {[]string{"-enroll", "a", "-group", "A"}, 2, []string{"-enroll", `"a"`, "once"}},
		"no group":               {[]string{"-enroll", "a/b"}, 2, []string{"-enroll", `"a/b"`, "-group a"}},
		"an enrollment's file":   {[]string{"-enroll", "a=/nowhere.pem"}, 1, []string{"-enroll", "/nowhere.pem"}},
		"no enrollment's file":   {[]string{"-group", "a="}, 2, []string{"-group", "name=file.pem"}},
		"a gateway's name":       {[]string{"-gateway", "a b"}, 2, []string{"-gateway", "letters"}},
		"a gateway of a broker":  {[]string{"-gateway", "x", "-broker"}, 2, []string{"-gateway", "-broker"}},
		"a route alone":          {[]string{"-route", "x"}, 2, []string{"-route", "-gateway"}},
		"a route":                {[]string{"-gateway", "x", "-route", "to y"}, 2, []string{"-route", "to y"}},
		"a device as a module":   {[]string{"-module", "x"}, 2, []string{"-module", "device/module"}},
		"a module's name":        {[]string{"-module", "x/a b"}, 2, []string{"-module", `"x/a b"`}},
		"a workload API":         {[]string{"-workload", "5671"}, 2, []string{"-workload", "unix:///path", "host:port"}},
		"a socket's path":        {[]string{"-workload", "unix://w.sock"}, 2, []string{"-workload", "absolute"}},
		"a socket's directory":   {[]string{"-workload", "unix:///nowhere/w.sock"}, 1, []string{"-workload", "directory"}},
		"a port taken, workload": {[]string{"-workload", at}, 1, []string{"-workload", at}},
		"no file":                {[]string{"-devices", "/nowhere.json"}, 1, []string{"-devices", "/nowhere.json"}},
		"no JSON":                {file(`{`), 1, []string{"-devices", "hub.json", "object"}},
		"a member":               {file(`{"device":[]}`), 1, []string{"device: is not known", "devices"}},
		"a member of a device": {file(`{"devices":[{"id":"a"},{"id":"b","key":"x"}]}`), 1, []string{"devices[1].key",
			"primaryKey"}},
		"no id": {file(`{"devices":[{}]}`), 1, []string{"devices[0].id", "missing"}},
		"a key": {file(`{"devices":[{"id":"a","primaryKey":"` + secret + `"}]}`), 1, []string{"devices[0].primaryKey",
			"base64"}},
		"a key and a thumbprint": {
			file(`{"devices":[{"id":"a","primaryKey":"MDEyMzQ1Njc4OWFiY2RlZg==","thumbprints":["ab"]}]}`), 1,
			[]string{"devices[0].primaryKey",
				"leave out"}},
		"two certificates": {file(`{"devices":[{"id":"a","certificateAuthority":true,"thumbprints":["ab"]}]}`), 1,
			[]string{"devices[0].thumbprints"}},
		"a module's modules": {file(`{"devices":[{"id":"a","modules":[{"id":"b","modules":[]}]}]}`), 1,
			[]string{"devices[0].modules[0].modules"}},
		"a list":        {file(`{"devices":{"id":"a"}}`), 1, []string{"devices", "array"}},
		"an authority":  {file(`{"authorities":["no.pem"]}`), 1, []string{"authorities", "no.pem"}},
		"a certificate": {file(`{"authorities":["hub.json"]}`), 1, []string{"hub.json", "PEM"}},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
			defer cancel()
			args := append([]string{"-free", "-ca", filepath.Join(t.TempDir(), "ca.pem")}, c.args...)
			require.Equal(t, c.status, run(ctx, args, &stdout, &stderr), stderr.String())
			require.Empty(t, stdout.String())
			for _, want := range c.want {
				require.Contains(t, stderr.String(), want)
			}
			require.NotContains(t, stderr.String(), secret)
			require.Equal(t, 1, strings.Count(stderr.String(), "\n"), stderr.String())
		})
	}
}

// The CA file belongs to the hub that has the ports. A start that fails does not change it.
func TestAFailedStartKeepsTheCAFileOfTheFirstHub(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	for _, port := range []string{"-mqtt", "-amqp", "-https", "-control"} {
		ca := write(t, "ca.pem", "of the first hub")
		var stdout, stderr bytes.Buffer
		require.Equal(t, 1, run(t.Context(), []string{"-free", "-ca", ca, port, taken.Addr().String()}, &stdout, &stderr))
		require.Contains(t, stderr.String(), "taken")
		kept, err := os.ReadFile(ca)
		require.NoError(t, err)
		require.Equal(t, "of the first hub", string(kept), port)
	}
}

func TestHelp(t *testing.T) {
	var stdout, stderr bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"-h"}, &stdout, &stderr))
	for _, name := range []string{"-mqtt", "-amqp", "-https", "-host", "-device", "-x509", "-devices", "-ca", "-control",
		"-json", "-free", "-seed", "-env"} {
		require.Contains(t, stderr.String(), name)
	}
}

// A device file with everything: given keys, certificates by thumbprint and by authority, modules,
// a disabled device.
func TestFileOfDevices(t *testing.T) {
	primary, secondary := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 32)),
		base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{2}, 16))
	own := testbroker.NewClientCert("by-thumbprint", time.Time{}, time.Time{})
	authority := testbroker.NewCertAuthority("maker")
	signed := authority.NewClientCert("by-authority", time.Time{}, time.Time{})
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "maker.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: authority.Cert().Raw}), 0o600))
	doc, err := json.Marshal(map[string]any{
		"authorities": []string{"maker.pem"},
		"devices": []any{
			map[string]any{"id": "keys", "primaryKey": primary, "secondaryKey": secondary,
				"modules": []any{map[string]any{"id": "cam",
					"primaryKey": secondary}}},
			map[string]any{"id": "by-thumbprint", "thumbprints": []string{testbroker.Thumbprint(own.Leaf)}},
			map[string]any{"id": "by-authority", "certificateAuthority": true},
			map[string]any{"id": "off", "disabled": true},
		},
	})
	require.NoError(t, err)
	file := filepath.Join(dir, "hub.json")
	require.NoError(t, os.WriteFile(file, doc, 0o600))

	p := start(t, "-devices", file, "-device", "more")
	printed := make(map[string]string)
	for _, d := range p.ready.Devices {
		printed[d.Device] = d.ConnectionString
	}
	require.Equal(t, "HostName=localhost;DeviceId=keys;SharedAccessKey="+primary, printed["keys"])
	require.Equal(t, "HostName=localhost;DeviceId=keys;ModuleId=cam;SharedAccessKey="+secondary, printed["keys/cam"])
	require.Equal(t, "HostName=localhost;DeviceId=by-authority;x509=true", printed["by-authority"])
	require.Len(t, printed, 6)
	try := func() {
		for id, cert := range map[string]*tls.Certificate{"keys": nil, "keys/cam": nil, "more": nil, "by-thumbprint": &own,
			"by-authority": &signed} {
			o := &mqtt.Options{Network: netopt.Options{Addr: p.ready.Addresses["mqtt"], TLS: p.tls()}}
			if cert != nil {
				o.Network.Certificate = func(context.Context) (*tls.Certificate, error) { return cert, nil }
			}
			creds, err := device.ParseConnectionString(printed[id])
			require.NoError(t, err)
			c, err := device.New(creds, mqtt.New(o), nil)
			require.NoError(t, err)
			require.NoError(t, c.Open(soon(t)), id)
			require.NoError(t, c.Close())
		}
		require.ErrorIs(t, p.client("off", "mqtt", nil).Open(soon(t)), transport.Unauthorized)
	}
	try()
	p.good("POST", "/devices/off/enable", "")
	require.NoError(t, p.client("off", "mqtt", nil).Open(soon(t)))
	p.good("POST", "/reset", "")
	try()
}

// A textOutput is testhub's output for humans, line by line.
type textOutput struct {
	lines chan string
	all   bytes.Buffer // after end
	end   func() (status int, stderr string)
}

// startText runs testhub with its output for humans.
func startText(t *testing.T, args ...string) *textOutput {
	ctx, cancel := context.WithCancel(t.Context())
	var stderr bytes.Buffer
	out, in := io.Pipe()
	status := make(chan int)
	go func() {
		code := run(ctx, append([]string{"-free", "-ca", filepath.Join(t.TempDir(), "ca.pem")}, args...), in, &stderr)
		in.Close()
		status <- code
	}()
	o := &textOutput{lines: make(chan string, 1000)}
	go func() {
		defer close(o.lines)
		for l := bufio.NewScanner(out); l.Scan(); {
			o.all.WriteString(l.Text() + "\n")
			o.lines <- l.Text()
		}
	}()
	o.end = func() (int, string) {
		cancel()
		code := <-status
		for range o.lines {
		}
		return code, stderr.String()
	}
	return o
}

// rows returns the values of the lines up to the one that says ready, by their first word.
func (o *textOutput) rows() map[string]string {
	rows := map[string]string{}
	for l := range o.lines {
		name, v, _ := strings.Cut(l, " ")
		rows[name] = strings.TrimSpace(v)
		if name == "ready;" {
			break
		}
	}
	return rows
}

// message waits for the line of a message.
func (o *textOutput) message() string {
	for l := range o.lines {
		if strings.Contains(l, " message ") {
			return l
		}
	}
	return ""
}

// Without flags testhub prints the page, the device, and a command that makes a message arrive.
func TestTextOfAStartHasThreeLines(t *testing.T) {
	o := startText(t)
	rows := o.rows()
	require.ElementsMatch(t, []string{"page", "device", "try", "ready;"}, slices.Collect(maps.Keys(rows)))
	require.Contains(t, rows["device"], "DeviceId=dev-1;")
	if _, err := exec.LookPath("curl"); err == nil {
		out, err := exec.CommandContext(soon(t), "sh", "-c", rows["try"]).CombinedOutput()
		require.NoError(t, err, string(out))
		require.Contains(t, o.message(), "dev-1 message without an id, 20 bytes over HTTP")
	}
	status, stderr := o.end()
	require.Zero(t, status, stderr)
}

// Output for humans: connection strings are printed once, keys nowhere else, and each event is one
// line for any client input.
func TestText(t *testing.T) {
	o := startText(t, "-v", "-device", "dev-1")
	rows := o.rows()
	p := &program{t: t, ready: readyObject{Addresses: map[string]string{"mqtt": rows["mqtt"]}, CA: rows["ca"],
		Devices: []readyDevice{{Device: "dev-1", ConnectionString: rows["device"]}}}}
	c := p.client("dev-1", "mqtt", nil)
	require.NoError(t, c.Open(soon(t)))
	require.NoError(t, c.Send(soon(t), &transport.Message{ID: "a\"b", Body: []byte("x")}))
	require.NoError(t, c.Close())
	require.Contains(t, o.message(), `dev-1 message "a\"b", 1 bytes over MQTT`)
	status, stderr := o.end()
	require.Zero(t, status, stderr)
	require.Empty(t, stderr)
	stdout := o.all.String()
	_, key, _ := strings.Cut(rows["device"], "SharedAccessKey=")
	require.NotEmpty(t, key)
	require.Equal(t, 1, strings.Count(stdout, key))
	require.Equal(t, 5, strings.Count(stdout, "SharedAccessKey="), "the device, the service, events three times")
	require.Contains(t, stdout, "connected")
	require.Contains(t, stdout, "disconnected")
}

func TestOneLine(t *testing.T) {
	require.Equal(t, "Grüße, 世界 x", oneLine("Grüße, 世界 x"))
	require.Equal(t, `a\u000ab\u001b[0m\u2028`, oneLine("a\nb\x1b[0m\u2028"))
}

// With a seed, the keys and the certificate repeat from run to run; without one, never.
func TestSeed(t *testing.T) {
	keys := func(args ...string) (all [2]string) {
		args = append(args, desk...)
		t.Run(fmt.Sprint(args), func(t *testing.T) {
			p := start(t, args...)
			pem, err := os.ReadFile(p.ready.CA)
			require.NoError(t, err)
			all = [2]string{fmt.Sprint(p.ready.Devices, p.ready.DPS.Enrolled), string(pem)}
		})
		return all
	}
	differ := func(a, b [2]string) {
		require.NotEqual(t, a[0], b[0])
		require.NotEqual(t, a[1], b[1])
	}
	require.Equal(t, keys("-seed", "7"), keys("-seed", "7"))
	differ(keys("-seed", "7"), keys("-seed", "8"))
	differ(keys(), keys())
}

// A slow output delays nothing: lines are dropped, and the next one has their number.
func TestSlowOutput(t *testing.T) {
	gate := make(chan struct{})
	var got bytes.Buffer
	p := newPrinter(writerFunc(func(b []byte) (int, error) {
		<-gate
		return got.Write(b)
	}), true, func() {})
	p.start()
	for range pending + 100 {
		p.offer(line{Event: "x"})
	}
	close(gate)
	require.NoError(t, p.end())
	printed, lost := int64(0), int64(0)
	d := json.NewDecoder(&got)
	for {
		var l line
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		lost += l.Lost
		if l.Event == "x" {
			printed++
		}
	}
	require.GreaterOrEqual(t, lost, int64(99))
	require.EqualValues(t, pending+100, printed+lost)
}

// When the output is closed, the program ends with an error.
func TestOutputThatIsGone(t *testing.T) {
	var once sync.Once
	var control string
	ready := make(chan struct{})
	var stderr bytes.Buffer
	w := writerFunc(func(b []byte) (int, error) {
		var r readyObject
		if json.Unmarshal(b, &r) == nil && r.Event == "ready" {
			once.Do(func() { control = r.Control; close(ready) })
			return len(b), nil
		}
		return 0, io.ErrClosedPipe
	})
	status := make(chan int)
	go func() {
		status <- run(t.Context(), []string{"-free", "-json", "-ca", filepath.Join(t.TempDir(), "ca.pem")}, w, &stderr)
	}()
	<-ready
	p := &program{t: t, ready: readyObject{Control: control}}
	hub := p.good("GET", "/hub", "")
	conn, err := net.Dial("tcp", hub["addresses"].(map[string]any)["mqtt"].(string))
	require.NoError(t, err)
	_, err = conn.Write([]byte("not TLS")) // is refused, which is an event
	require.NoError(t, err)
	conn.Close()
	require.Equal(t, 1, <-status)
	require.Contains(t, stderr.String(), "output")

	require.Equal(t, 1, run(t.Context(), []string{"-free", "-ca", filepath.Join(t.TempDir(), "ca.pem")},
		writerFunc(func([]byte) (int, error) { return 0, io.ErrClosedPipe }), &stderr))
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestBrokerFlag starts a plain broker, and connects with the printed URL in both versions.
func TestBrokerFlag(t *testing.T) {
	p := start(t, "-broker", "-amqp", "off", "-https", "off", "-device", "dev-1")
	u := p.ready.Devices[0].BrokerURL
	require.Regexp(t, `^mqtts://dev-1:.+@localhost:\d+/\?device=dev-1&telemetry=devices/\{device\}/up&commands=`, u)
	for i, version := range []string{"3.1.1", "5"} {
		creds, o, err := mqtt.ParseBroker(u + "&version=" + version)
		require.NoError(t, err)
		o.Network.TLS = p.tls()
		c, err := device.New(creds, mqtt.New(o), nil)
		require.NoError(t, err)
		got := make(chan string, 1)
		c.HandleMessages(func(_ context.Context, m *transport.Message) error {
			got <- m.Topic + " " + string(m.Body)
			return nil
		})
		require.NoError(t, c.Open(soon(t)))
		require.NoError(t, c.Send(soon(t), &transport.Message{Body: []byte("21"), Retain: true}))
		m := p.good("GET", "/messages", "")["messages"].([]any)[i].(map[string]any)
		require.Equal(t, []any{"devices/dev-1/up", "21", true}, []any{m["topic"], m["body"], m["retain"]})
		p.good("POST", "/devices/dev-1/c2d", `{"topic":"devices/dev-1/down/reboot","body":"now"}`)
		require.Equal(t, "devices/dev-1/down/reboot now", <-got)
		require.NoError(t, c.Close())
	}
	require.Equal(t, "topic", p.refused(400, "POST", "/devices/dev-1/c2d", `{"topic":"a/#"}`).Field)
}
