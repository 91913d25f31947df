package edge_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/edge"
	"github.com/hubline-iot/hubline/transport"
)

// variables are an environment.
type variables map[string]string

func (v variables) lookup(name string) (string, bool) {
	value, ok := v[name]
	return value, ok
}

// with returns a copy with these variables, given as name, value, name, value.
func (v variables) with(pairs ...string) variables {
	c := variables{}
	for name, value := range v {
		c[name] = value
	}
	for i := 0; i < len(pairs); i += 2 {
		c[pairs[i]] = pairs[i+1]
	}
	return c
}

func (v variables) module() (*edge.Module, error) {
	return edge.FromEnvironment(&edge.Options{LookupEnv: v.lookup})
}

// ofRuntime is the environment of a module of the runtime.
var ofRuntime = variables{
	"IOTEDGE_WORKLOADURI":        "unix:///var/run/iotedge/workload.sock",
	"IOTEDGE_IOTHUBHOSTNAME":     "hub1.example.test",
	"IOTEDGE_GATEWAYHOSTNAME":    "gateway.local",
	"IOTEDGE_DEVICEID":           "edge-1",
	"IOTEDGE_MODULEID":           "filter",
	"IOTEDGE_MODULEGENERATIONID": "636463636967581550",
	"IOTEDGE_AUTHSCHEME":         "sasToken",
	"IOTEDGE_APIVERSION":         "2019-01-30",
}

func requireInvalid(t *testing.T, err error, texts ...string) {
	t.Helper()
	require.ErrorIs(t, err, transport.Invalid)
	require.NotNil(t, transport.Find(err))
	for _, text := range texts {
		require.ErrorContains(t, err, text)
	}
}

func TestTheRuntimesVariablesMakeAModule(t *testing.T) {
	m, err := ofRuntime.module()
	require.NoError(t, err)
	c := m.Credentials
	require.NoError(t, c.Validate())
	require.Equal(t, "hub1.example.test", c.Host)
	require.Equal(t, "gateway.local", c.DialHost())
	require.Equal(t, "hub1.example.test/devices/edge-1/modules/filter", c.Resource())
	require.NotNil(t, c.Sign)
	require.Empty(t, c.KeyName)
	require.NotNil(t, m.Network.RootCAs)
	require.NotContains(t, fmt.Sprintf("%+v", m), "636463636967581550")
}

func TestWithoutAGatewayTheHubIsDialedWithTheSystemsRoots(t *testing.T) {
	m, err := ofRuntime.with("IOTEDGE_GATEWAYHOSTNAME", "").module()
	require.NoError(t, err)
	require.Equal(t, "hub1.example.test", m.Credentials.DialHost())
	require.Nil(t, m.Network.RootCAs)
}

func TestTheErrorNamesAllMissingVariables(t *testing.T) {
	_, err := variables{}.module()
	requireInvalid(t, err, "IOTEDGE_WORKLOADURI", "IOTEDGE_IOTHUBHOSTNAME", "IOTEDGE_DEVICEID", "IOTEDGE_MODULEID",
		"IOTEDGE_MODULEGENERATIONID", "IOTEDGE_AUTHSCHEME", " are not set", "EdgeHubConnectionString")
	require.NotContains(t, err.Error(), "IOTEDGE_GATEWAYHOSTNAME", "it is optional")
	require.NotContains(t, err.Error(), "IOTEDGE_APIVERSION", "it is optional")

	for name := range ofRuntime {
		_, err := ofRuntime.with(name, " \t").module()
		if name == "IOTEDGE_GATEWAYHOSTNAME" || name == "IOTEDGE_APIVERSION" {
			require.NoError(t, err)
			continue
		}
		requireInvalid(t, err, name+" is not set")
	}
}

func TestTheErrorNamesAllWrongVariables(t *testing.T) {
	_, err := ofRuntime.with("IOTEDGE_DEVICEID", "", "IOTEDGE_MODULEID", "a b", "IOTEDGE_IOTHUBHOSTNAME", "https://hub",
		"IOTEDGE_AUTHSCHEME", "x509").module()
	requireInvalid(t, err, "IOTEDGE_DEVICEID is not set", `IOTEDGE_MODULEID is "a b"`,
		`IOTEDGE_IOTHUBHOSTNAME is "https://hub"`, `IOTEDGE_AUTHSCHEME is "x509", and only sasToken`)
}

func TestValuesOfTheEnvironment(t *testing.T) {
	for _, c := range []struct {
		name, value string
		ok          bool
	}{
		{"IOTEDGE_AUTHSCHEME", "SasToken", true},
		{"IOTEDGE_AUTHSCHEME", "SASTOKEN", true},
		{"IOTEDGE_AUTHSCHEME", "sas", false},
		{"IOTEDGE_APIVERSION", "2018-06-28", true},
		{"IOTEDGE_APIVERSION", "2022-08-03-preview", true},
		{"IOTEDGE_APIVERSION", "2018-06-28&x=y", false},
		{"IOTEDGE_APIVERSION", "2018-13-28", false},
		{"IOTEDGE_APIVERSION", "latest", false},
		{"IOTEDGE_GATEWAYHOSTNAME", "Gateway_1.local", true},
		{"IOTEDGE_GATEWAYHOSTNAME", "gateway:8883", false},
		{"IOTEDGE_MODULEID", "$edgeAgent", true},
		{"IOTEDGE_MODULEID", strings.Repeat("m", 129), false},
		{"IOTEDGE_WORKLOADURI", "http://172.18.0.1:15580", true},
		{"IOTEDGE_WORKLOADURI", "http://[::1]:15580/base/", true},
		{"IOTEDGE_WORKLOADURI", "http://daemon", true},
		{"IOTEDGE_WORKLOADURI", "http://daemon:0", false},
		{"IOTEDGE_WORKLOADURI", "http://daemon:65536", false},
		{"IOTEDGE_WORKLOADURI", "http://:80", false},
		{"IOTEDGE_WORKLOADURI", "https://daemon", false},
		{"IOTEDGE_WORKLOADURI", "unix://workload.sock", false},
		{"IOTEDGE_WORKLOADURI", "unix:///", false},
		{"IOTEDGE_WORKLOADURI", "/var/run/iotedge/workload.sock", false},
		{"IOTEDGE_WORKLOADURI", "http://daemon?x", false},
		{"IOTEDGE_WORKLOADURI", "http://da emon\x00", false},
	} {
		_, err := ofRuntime.with(c.name, c.value).module()
		if c.ok {
			require.NoError(t, err, "%s=%s", c.name, c.value)
			continue
		}
		requireInvalid(t, err, c.name)
	}
}

func TestErrorsShowNoPasswordAndAreShort(t *testing.T) {
	_, err := ofRuntime.with("IOTEDGE_WORKLOADURI", "http://user:geheim@daemon:1").module()
	requireInvalid(t, err, "IOTEDGE_WORKLOADURI is not")
	require.NotContains(t, err.Error(), "geheim")

	_, err = ofRuntime.with("IOTEDGE_DEVICEID", strings.Repeat("x ", 10_000)).module()
	requireInvalid(t, err, "IOTEDGE_DEVICEID")
	require.Less(t, len(err.Error()), 500)
}

const moduleString = "HostName=hub1.example.test;DeviceId=edge-1;ModuleId=filter;SharedAccessKey=" + secret +
	";GatewayHostName=gateway.local"

func TestConnectionStringsComeFirst(t *testing.T) {
	env := ofRuntime.with("IotHubConnectionString", strings.Replace(moduleString, "filter", "second", 1))
	m, err := env.module()
	require.NoError(t, err)
	require.Equal(t, "second", m.Credentials.ModuleID)

	m, err = env.with("EdgeHubConnectionString", moduleString).module()
	require.NoError(t, err)
	require.Equal(t, "filter", m.Credentials.ModuleID)
	require.Equal(t, "gateway.local", m.Credentials.DialHost())
	require.Nil(t, m.Network.RootCAs, "without a file the system's roots hold")

	m, err = variables{"IotHubConnectionString": moduleString}.module()
	require.NoError(t, err, "the runtime's variables are not needed")
	_, err = m.Credentials.NewToken(t.Context())
	require.NoError(t, err)
}

func TestErrorsOfConnectionStringsNameTheirVariable(t *testing.T) {
	for name, text := range map[string]string{
		"EdgeHubConnectionString": strings.Replace(moduleString, "HostName=hub1.example.test;", "", 1),
		"IotHubConnectionString":  strings.Replace(moduleString, "ModuleId=filter;", "", 1),
	} {
		_, err := variables{name: text}.module()
		requireInvalid(t, err, name, map[bool]string{true: "HostName", false: "ModuleId"}[name[0] == 'E'])
		require.NotContains(t, err.Error(), secret)
	}
}

func TestACAFileVerifiesTheGatewayOfAConnectionString(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	env := variables{"EdgeHubConnectionString": moduleString, "EdgeModuleCACertificateFile": file}
	_, err := env.module()
	requireInvalid(t, err, "EdgeModuleCACertificateFile", file)

	require.NoError(t, os.WriteFile(file, []byte("junk"), 0o600))
	_, err = env.module()
	requireInvalid(t, err, "EdgeModuleCACertificateFile", file, "no certificate")

	text, roots := certificates(t, 2)
	require.NoError(t, os.WriteFile(file, text, 0o600))
	m, err := env.module()
	require.NoError(t, err)
	got, err := m.Network.RootCAs(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, got.Equal(roots))

	m, err = env.with("EdgeHubConnectionString", strings.TrimSuffix(moduleString, ";GatewayHostName=gateway.local"),
		"EdgeModuleCACertificateFile", "/nowhere").module()
	require.NoError(t, err)
	require.Nil(t, m.Network.RootCAs, "the hub is dialed, with the system's roots")
}

func TestOptionsAreChecked(t *testing.T) {
	_, err := edge.FromEnvironment(&edge.Options{LookupEnv: ofRuntime.lookup, Timeout: -time.Second})
	requireInvalid(t, err, "Timeout is negative")
	for name, value := range ofRuntime {
		t.Setenv(name, value)
	}
	m, err := edge.FromEnvironment(nil)
	require.NoError(t, err)
	require.Equal(t, "filter", m.Credentials.ModuleID)
}
