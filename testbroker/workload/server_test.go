package workload_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/workload"
)

// daemon is a workload server of a hub with the modules edge-1/filter and edge-2/filter, and a
// client that dials it.
type daemon struct {
	t      *testing.T
	hub    *testbroker.Hub
	server *workload.Server
	filter hubdata.Device // edge-1/filter
	client *http.Client
}

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// newDaemon makes a daemon whose client dials in memory.
func newDaemon(t *testing.T, ho *testbroker.Options, o *workload.Options) *daemon {
	h, err := testbroker.New(ho)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	for _, id := range []string{"edge-1", "edge-2", "leaf"} {
		_, err = h.AddDevice(id)
		require.NoError(t, err)
	}
	filter, err := h.AddModule("edge-1", "filter")
	require.NoError(t, err)
	_, err = h.AddModule("edge-2", "filter")
	require.NoError(t, err)
	s, err := workload.New(h, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	d := &daemon{t: t, hub: h, server: s, filter: filter}
	d.dial(s.Dial)
	return d
}

// dial makes the client use another dialer.
func (d *daemon) dial(to dialer) {
	d.client = &http.Client{Transport: &http.Transport{DialContext: to}}
	d.t.Cleanup(d.client.CloseIdleConnections)
}

// do sends a request and returns the answer.
func (d *daemon) do(method, path, body string) (status int, text []byte, err error) {
	req, err := http.NewRequest(method, "http://workload.sock"+path, strings.NewReader(body))
	require.NoError(d.t, err)
	answer, err := d.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	text, err = io.ReadAll(answer.Body)
	return answer.StatusCode, text, err
}

// call makes a call that gets an answer, of which it returns the JSON members.
func (d *daemon) call(method, path, body string) (status int, a map[string]any) {
	d.t.Helper()
	status, text, err := d.do(method, path+"?api-version=2018-06-28", body)
	require.NoError(d.t, err)
	require.NoError(d.t, json.Unmarshal(text, &a), "%s", text)
	return status, a
}

// path returns the path of a call for a module.
func path(m hubdata.Device, call string) string {
	return "/modules/" + url.PathEscape(m.ModuleID) + "/genid/" + m.GenerationID + "/" + call
}

func signBody(data string) string {
	return `{"keyId":"primary","algo":"HMACSHA256","data":"` + base64.StdEncoding.EncodeToString([]byte(data)) + `"}`
}

func digest(key, data string) string {
	raw, err := base64.StdEncoding.DecodeString(key)
	if err != nil {
		panic(err)
	}
	mac := hmac.New(sha256.New, raw)
	mac.Write([]byte(data))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func TestSignsWithTheKeyOfTheModule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, nil, nil)
		status, a := d.call("POST", path(d.filter, "sign"), signBody("hub%2Fx\n1893456000"))
		require.Equal(t, 200, status)
		require.Equal(t, digest(d.filter.PrimaryKey, "hub%2Fx\n1893456000"), a["digest"])
		require.Len(t, a, 1)

		other, err := d.hub.Device("edge-2/filter")
		require.NoError(t, err)
		require.NotEqual(t, d.filter.GenerationID, other.GenerationID)
		_, a = d.call("POST", path(other, "sign"), signBody("x"))
		require.Equal(t, digest(other.PrimaryKey, "x"), a["digest"], "the generation id tells the modules apart")

		require.Equal(t, 2, d.server.Count(workload.CallSign))
		log := d.server.Log()
		require.Len(t, log, 2)
		require.Equal(t, workload.Record{Call: workload.CallSign, Method: "POST", Path: path(d.filter, "sign"),
			Host: "workload.sock", APIVersion: "2018-06-28", Module: "edge-1/filter", Status: 200, Time: time.Now()}, log[0])
		require.Equal(t, "edge-2/filter", log[1].Module)
	})
}

// The vectors are of RFC 4231, test case 1, and of a token that is known to be right.
func TestSignsAsTheStandardSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, nil, nil)
		for _, row := range []struct{ key, data, digest string }{
			{"0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "Hi There", "sDRMYdjbOFNcqK/OrwvxK4gdwgDJgz2nJuk3bC4yz/c="},
			{"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
				"hub1.example.test%2Fdevices%2Fdev-1%2Fmodules%2Fmod-1\n1893456000",
				"BygQTaq++exEDIDsROvbR7QfclF0h64UGKEmLJ7BcRY="},
		} {
			raw, err := hex.DecodeString(row.key)
			require.NoError(t, err)
			key := base64.StdEncoding.EncodeToString(raw)
			require.NoError(t, d.hub.SetKeys("edge-1/filter", key, key))
			_, a := d.call("POST", path(d.filter, "sign"), signBody(row.data))
			require.Equal(t, row.digest, a["digest"])
		}
	})
}

func TestRefusesRequestsThatAreWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, nil, nil)
		_, err := d.hub.AddDeviceX509("edge-1/certified", strings.Repeat("ab", 32))
		require.NoError(t, err)
		certified, err := d.hub.Device("edge-1/certified")
		require.NoError(t, err)
		sign, ok := path(d.filter, "sign"), signBody("x")
		const version = "?api-version=2018-06-28"
		for name, row := range map[string]struct {
			method, path, body string
			status             int
			text               string
		}{
			"no version":      {"POST", sign, ok, 400, "api-version"},
			"another version": {"POST", sign + "?api-version=2017-01-01", ok, 400, "2022-08-03"},
			"two versions":    {"POST", sign + version + "&api-version=2018-06-28", ok, 400, "api-version"},
			"no body":         {"POST", sign + version, "", 400, "no body"},
			"no JSON":         {"POST", sign + version, "{", 400, "body:"},
			"no data":         {"POST", sign + version, `{"keyId":"primary"}`, 400, "data is missing"},
			"no base64":       {"POST", sign + version, `{"data":"!"}`, 400, "data is not base64"},
			"no text":         {"POST", sign + version, `{"data":7}`, 400, "data"},
			"too large":       {"POST", sign + version, `{"data":"` + strings.Repeat("A", 256<<10) + `"}`, 413, "262144"},
			"other generation": {"POST", strings.Replace(sign, d.filter.GenerationID, "1", 1) + version, ok, 404,
				`generation id "1"`},
			"other module":     {"POST", strings.Replace(sign, "filter", "none", 1) + version, ok, 404, `"none"`},
			"device as module": {"POST", "/modules/leaf/genid/1/sign" + version, ok, 404, "leaf"},
			"no key":           {"POST", path(certified, "sign") + version, ok, 403, "certificate"},
			"other method":     {"GET", sign + version, "", 405, "GET"},
			"other path":       {"POST", "/modules/filter/sign" + version, ok, 404, "no such path"},
			"root":             {"GET", "/", "", 404, "no such path"},
			"no name":          {"POST", "/modules//genid/1/sign" + version, ok, 404, "no such path"},
		} {
			status, text, err := d.do(row.method, row.path, row.body)
			require.NoError(t, err, name)
			require.Equal(t, row.status, status, "%s: %s", name, text)
			var a map[string]string
			require.NoError(t, json.Unmarshal(text, &a), name)
			require.Len(t, a, 1)
			require.Contains(t, a["message"], row.text, name)
		}
	})
}

func TestADeletedModuleHasAnotherGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, nil, nil)
		require.NoError(t, d.hub.RemoveDevice("edge-1/filter"))
		again, err := d.hub.AddModule("edge-1", "filter")
		require.NoError(t, err)
		status, _ := d.call("POST", path(d.filter, "sign"), signBody("x"))
		require.Equal(t, 404, status)
		status, _ = d.call("POST", path(again, "sign"), signBody("x"))
		require.Equal(t, 200, status)
	})
}

func TestNamesAreDecoded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, nil, nil)
		odd, err := d.hub.AddModule("edge-1", "$edge+Hub%2F#?")
		require.NoError(t, err)
		status, a := d.call("POST", path(odd, "sign"), signBody("x"))
		require.Equal(t, 200, status)
		require.Equal(t, digest(odd.PrimaryKey, "x"), a["digest"])
	})
}

func TestOneDeviceOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, nil, &workload.Options{Device: "edge-2"})
		status, _ := d.call("POST", path(d.filter, "sign"), signBody("x"))
		require.Equal(t, 404, status)
		_, a := d.call("GET", "/modules", "")
		require.Len(t, a["modules"], 1)
		require.Nil(t, d.server.Environment("edge-1", "filter"))
		require.NotNil(t, d.server.Environment("edge-2", "filter"))

		for _, o := range []workload.Options{{Device: "nobody"}, {Device: "edge-1/filter"}} {
			_, err := workload.New(d.hub, &o)
			require.ErrorContains(t, err, "Options.Device")
		}
		_, err := workload.New(nil, nil)
		require.ErrorContains(t, err, "no hub")
	})
}

func TestModulesAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, nil, nil)
		status, text, err := d.do("GET", "/modules?api-version=2022-08-03", "")
		require.NoError(t, err)
		require.Equal(t, 200, status)
		require.JSONEq(t, `{"modules":[
			{"id":"filter","name":"filter","type":"docker","config":{"settings":{},"env":[]},
			 "status":{"runtimeStatus":{"status":"stopped"}}},
			{"id":"filter","name":"filter","type":"docker","config":{"settings":{},"env":[]},
			 "status":{"runtimeStatus":{"status":"stopped"}}}]}`, string(text))
	})
}

func TestEncryptsForOneModule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, nil, nil)
		vector := base64.StdEncoding.EncodeToString([]byte("a vector"))
		secret := base64.StdEncoding.EncodeToString([]byte("open sesame"))
		body := func(member, text, vector string) string {
			return `{"` + member + `":"` + text + `","initializationVector":"` + vector + `"}`
		}
		status, a := d.call("POST", path(d.filter, "encrypt"), body("plaintext", secret, vector))
		require.Equal(t, 200, status)
		sealed := a["ciphertext"].(string)
		raw, err := base64.StdEncoding.DecodeString(sealed)
		require.NoError(t, err)
		require.False(t, bytes.Contains(raw, []byte("sesame")))

		status, a = d.call("POST", path(d.filter, "decrypt"), body("ciphertext", sealed, vector))
		require.Equal(t, 200, status)
		require.Equal(t, secret, a["plaintext"])

		other, err := d.hub.Device("edge-2/filter")
		require.NoError(t, err)
		for name, row := range map[string]struct{ path, body, text string }{
			"other module": {path(other, "decrypt"), body("ciphertext", sealed, vector), "was not made"},
			"other vector": {path(d.filter, "decrypt"), body("ciphertext", sealed, secret), "was not made"},
			"no vector":    {path(d.filter, "decrypt"), body("ciphertext", sealed, ""), "initializationVector is missing"},
			"long vector": {path(d.filter, "encrypt"), body("plaintext", secret,
				base64.StdEncoding.EncodeToString(make([]byte, 65))), "65 bytes"},
			"no text":    {path(d.filter, "encrypt"), body("plaintext", "", vector), "plaintext is missing"},
			"no base64":  {path(d.filter, "decrypt"), body("ciphertext", "!", vector), "not base64"},
			"no vector2": {path(d.filter, "encrypt"), body("plaintext", secret, "!"), "initializationVector"},
			"no JSON":    {path(d.filter, "encrypt"), "[]", "body"},
			"no JSON2":   {path(d.filter, "decrypt"), "[]", "body"},
		} {
			status, a := d.call("POST", row.path, row.body)
			require.Equal(t, 400, status, name)
			require.Contains(t, a["message"], row.text, name)
		}
	})
}

func TestTheEnvironmentOfAModule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, &testbroker.Options{HostName: "hub.test"},
			&workload.Options{GatewayHostName: "gateway.test", APIVersions: []string{"2018-06-28", "2019-01-30"}})
		require.Equal(t, []string{
			"IOTEDGE_WORKLOADURI=unix:///var/run/iotedge/workload.sock",
			"IOTEDGE_IOTHUBHOSTNAME=hub.test",
			"IOTEDGE_GATEWAYHOSTNAME=gateway.test",
			"IOTEDGE_DEVICEID=edge-1",
			"IOTEDGE_MODULEID=filter",
			"IOTEDGE_MODULEGENERATIONID=" + d.filter.GenerationID,
			"IOTEDGE_AUTHSCHEME=sasToken",
			"IOTEDGE_APIVERSION=2019-01-30",
		}, d.server.Environment("edge-1", "filter"))
		for _, id := range [][2]string{{"edge-1", "none"}, {"none", "filter"}, {"leaf", ""}} {
			require.Nil(t, d.server.Environment(id[0], id[1]))
		}
		lookup := workload.LookupEnv(d.server.Environment("edge-1", "filter"))
		value, ok := lookup("IOTEDGE_DEVICEID")
		require.True(t, ok)
		require.Equal(t, "edge-1", value)
		_, ok = lookup("IOTEDGE_DEVICE")
		require.False(t, ok)
	})
}

// With real sockets there is no bubble.
func TestListensOnSockets(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			d := newDaemon(t, nil, nil)
			addr := "127.0.0.1:0"
			if network == "unix" {
				addr = filepath.Join(t.TempDir(), "w.sock")
			}
			at, err := d.server.Listen(network, addr)
			require.NoError(t, err)
			to := func(context.Context, string, string) (net.Conn, error) { return net.Dial(network, at.String()) }
			d.dial(to)
			status, a := d.call("POST", path(d.filter, "sign"), signBody("x"))
			require.Equal(t, 200, status)
			require.Equal(t, digest(d.filter.PrimaryKey, "x"), a["digest"])
			want := map[string]string{"unix": "unix://" + addr, "tcp": "http://" + at.String()}[network]
			require.Equal(t, want, d.server.URI())
			require.Contains(t, d.server.Environment("edge-1", "filter"), "IOTEDGE_WORKLOADURI="+want)

			_, err = d.server.Listen(network, at.String())
			require.ErrorContains(t, err, "in use")
			_, err = d.server.Listen("udp", at.String())
			require.ErrorContains(t, err, "give unix or tcp")

			d.server.Stop()
			d.server.Stop()
			d.client.CloseIdleConnections() // it may not have seen yet that they are cut
			_, _, err = d.do("POST", path(d.filter, "sign"), signBody("x"))
			require.Error(t, err)
			if network == "unix" {
				require.ErrorIs(t, err, syscall.ENOENT)
			}
			require.NoError(t, d.server.Start())
			require.NoError(t, d.server.Start())
			status, _ = d.call("POST", path(d.filter, "sign"), signBody("x"))
			require.Equal(t, 200, status)

			require.NoError(t, d.server.Close())
			require.NoError(t, d.server.Close())
			d.client.CloseIdleConnections()
			_, _, err = d.do("POST", path(d.filter, "sign"), signBody("x"))
			require.Error(t, err)
			_, err = d.server.Listen(network, addr)
			require.ErrorIs(t, err, net.ErrClosed)
			_, err = net.Dial(network, at.String())
			require.Error(t, err)
		})
	}
}

// Another program may take the path of the socket meanwhile.
func TestStartFailsWhileThePathIsTaken(t *testing.T) {
	d := newDaemon(t, nil, nil)
	addr := filepath.Join(t.TempDir(), "w.sock")
	_, err := d.server.Listen("unix", addr)
	require.NoError(t, err)
	d.server.Stop()
	other, err := net.Listen("unix", addr)
	require.NoError(t, err)
	require.ErrorContains(t, d.server.Start(), "in use")
	require.NoError(t, other.Close())
	require.NoError(t, d.server.Start())
	c, err := net.Dial("unix", addr)
	require.NoError(t, err)
	require.NoError(t, c.Close())
}

func TestOptionsAreChecked(t *testing.T) {
	h, err := testbroker.New(nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	for name, o := range map[string]workload.Options{
		"Options.CertificateLife":     {CertificateLife: -1},
		"Options.ManifestTrustBundle": {ManifestTrustBundle: []byte("no PEM")},
	} {
		_, err := workload.New(h, &o)
		require.ErrorContains(t, err, name)
	}
}
