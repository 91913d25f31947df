package interop

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
)

const hubA, hubB = "hub-a.example.test", "hub-b.example.test"

// fleet is the official SDKs for provisioning and for devices, in one process, with a provisioning
// service and two hubs.
type fleet struct {
	*script
	dps  *testbroker.DPS
	hubs map[string]*testbroker.Hub
}

func startFleet(t testing.TB) *fleet {
	dps := openDPS(t)
	f := &fleet{dps: dps, hubs: map[string]*testbroker.Hub{}}
	services := map[string]interface {
		CAPEM() []byte
		Listen(testbroker.Port, string) (net.Addr, error)
	}{dps.HostName(): dps}
	for _, name := range []string{hubA, hubB} {
		hub := hubfixture.Open(t, &testbroker.Options{HostName: name})
		require.NoError(t, dps.Link(hub))
		f.hubs[name], services[name] = hub, hub
	}
	f.script = startScript(t, "device.js", trusting(t, dps, f.hubs[hubA], f.hubs[hubB]))
	var forward [][]any
	for name, s := range services {
		for port, service := range map[testbroker.Port]int{
			testbroker.PortMQTTS: 8883, testbroker.PortAMQPS: 5671, testbroker.PortHTTPS: 443,
		} {
			addr, err := s.Listen(port, "127.0.0.1:0")
			require.NoError(t, err)
			forward = append(forward, []any{service, addr.(*net.TCPAddr).Port, name})
		}
	}
	f.tell(map[string]any{"do": "ports", "forward": forward})
	f.next("done", "")
	return f
}

// openDPS makes a provisioning service that asks for short delays.
func openDPS(t testing.TB) *testbroker.DPS {
	dps, err := testbroker.NewDPS(&testbroker.DPSOptions{RetryAfter: time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dps.Close()) })
	return dps
}

// enroll adds an enrollment.
func (f *fleet) enroll(e dpsdata.Enrollment) dpsdata.Enrollment {
	f.t.Helper()
	e, err := f.dps.Enroll(e)
	require.NoError(f.t, err)
	return e
}

// provisioned is a device of a fleet. Its registration id is its name.
type provisioned struct {
	name, transport string
	key             string           // one of key and cert
	cert            *tls.Certificate // with its chain
	group           string           // the enrollment group; empty = none
	state           struct {
		AssignedHub, DeviceID, Substatus string
		Payload                          json.RawMessage
		SymmetricKey, X509               *struct{ EnrollmentGroupID *string }
	}
}

// chain returns the device's certificates and its key in PEM.
func (f *fleet) chain(d *provisioned) (certs, key string) {
	for _, der := range d.cert.Certificate {
		c, err := x509.ParseCertificate(der)
		require.NoError(f.t, err)
		certs += string(certPEM(c))
	}
	return certs, string(keyPEM(f.t, *d.cert))
}

// register registers devices, all at once. It returns the errors by device; empty for none.
func (f *fleet) register(payload any, devices ...*provisioned) map[string]string {
	f.t.Helper()
	for _, d := range devices {
		command := map[string]any{
			"do": "register", "name": d.name, "transport": d.transport, "host": f.dps.HostName(), "scope": f.dps.IDScope(),
			"id": d.name, "key": d.key, "payload": payload,
		}
		if d.cert != nil {
			command["cert"], command["certKey"] = f.chain(d)
		}
		f.tell(command)
	}
	failed := map[string]string{}
	for _, d := range devices {
		e := f.next("registered", d.name)
		if failed[d.name] = e.Text; e.Text == "" {
			require.NoError(f.t, json.Unmarshal([]byte(e.Payload), &d.state), e.Payload)
		}
	}
	return failed
}

// registered is register for devices that must get a hub.
func (f *fleet) registered(devices ...*provisioned) {
	f.t.Helper()
	for name, text := range f.register(nil, devices...) {
		require.Empty(f.t, text, name)
	}
}

// send connects devices to their hubs, sends a message of each, and finds it there.
func (f *fleet) send(round string, devices ...*provisioned) {
	f.t.Helper()
	body := func(d *provisioned) string { return round + ": from " + d.name + " to " + d.state.AssignedHub }
	for _, d := range devices {
		s := "HostName=" + d.state.AssignedHub + ";DeviceId=" + d.state.DeviceID
		command := map[string]any{
			"do": "open", "name": d.name, "transport": d.transport, "connectionString": s + ";SharedAccessKey=" + d.key,
			"trust": string(f.hubs[d.state.AssignedHub].CAPEM()),
		}
		if d.cert != nil {
			command["connectionString"] = s + ";x509=true"
			command["cert"], command["key"] = f.chain(d)
		}
		f.tell(command)
	}
	for _, d := range devices {
		require.Empty(f.t, f.next("opened", d.name).Text, d.name)
		f.tell(map[string]any{"do": "send", "name": d.name, "messages": []object{{"payload": body(d)}}})
	}
	for _, d := range devices {
		require.Empty(f.t, f.next("sent", d.name).Text, d.name)
		f.tell(map[string]any{"do": "close", "name": d.name})
	}
	for _, d := range devices {
		f.next("closed", d.name)
		n := 0
		for _, m := range f.hubs[d.state.AssignedHub].Messages() {
			if m.DeviceID == d.state.DeviceID && string(m.Body) == body(d) {
				n++
			}
		}
		require.Equal(f.t, 1, n, body(d))
	}
}

// The device SDK connects with what the provisioning SDK has returned.
func TestDeviceSDKRegisters(t *testing.T) {
	t.Parallel()
	f := startFleet(t)
	root := testbroker.NewCertAuthority("root")
	sub := root.NewAuthority("sub")
	group := f.enroll(dpsdata.Enrollment{ID: "keys", Group: true})
	f.enroll(dpsdata.Enrollment{ID: "certs", Group: true, Certificates: []*x509.Certificate{root.Cert()}})
	var all []*provisioned
	for _, way := range sdkTransports {
		own := f.enroll(dpsdata.Enrollment{ID: "key-" + way.name, DeviceID: "device-" + way.name})
		cert := testbroker.NewClientCert("cert-"+way.name, time.Time{}, time.Time{})
		signed := sub.NewClientCert("signed-"+way.name, time.Time{}, time.Time{})
		f.enroll(dpsdata.Enrollment{ID: "cert-" + way.name, Certificates: []*x509.Certificate{cert.Leaf}})
		all = append(all,
			&provisioned{name: own.ID, transport: way.name, key: own.SecondaryKey},
			&provisioned{name: "derived-" + way.name, transport: way.name, group: "keys",
				key: dpsdata.DeriveKey(group.PrimaryKey, "derived-"+way.name)},
			&provisioned{name: "cert-" + way.name, transport: way.name, cert: &cert},
			&provisioned{name: "signed-" + way.name, transport: way.name, group: "certs", cert: &signed})
	}
	f.registered(all...)
	at := map[string]int{}
	for _, d := range all {
		r, err := f.dps.Registration(d.name)
		require.NoError(t, err)
		require.Equal(t, []string{r.Hub, r.DeviceID}, []string{d.state.AssignedHub, d.state.DeviceID})
		want := d.name
		if strings.HasPrefix(want, "key-") {
			want = "device-" + d.transport
		}
		require.Equal(t, want, d.state.DeviceID)
		require.Equal(t, "initialAssignment", d.state.Substatus)
		proof := d.state.SymmetricKey
		if d.cert != nil {
			require.Nil(t, proof)
			proof = d.state.X509
		}
		require.NotNil(t, proof, d.name)
		require.Equal(t, d.group, *cmp.Or(proof.EnrollmentGroupID, new(string)), d.name)
		at[r.Hub]++
	}
	require.Len(t, at, 2, "both hubs have devices")
	f.send("first", all...)
	for _, r := range f.dps.Requests() {
		if r.Operation == dpsdata.OperationRegister {
			require.JSONEq(t, fmt.Sprintf(`{"registrationId":%q}`, r.RegistrationID), string(r.Body))
		}
		require.Equal(t, "2019-03-31", r.APIVersion)
	}
	seen(t,
		"%d devices over 5 transports: own key, derived key, own certificate, chain of an authority; each got its hub "+
			"(%d at one, %d at the other) and its message is there", len(all), at[hubA], at[hubB])

	keys := []*provisioned{}
	for _, d := range all {
		if d.group == "keys" {
			keys = append(keys, d)
		}
	}
	require.NoError(t, f.dps.Move("keys", hubB))
	f.registered(keys...)
	for _, d := range keys {
		require.Equal(t, hubB, d.state.AssignedHub)
	}
	f.send("moved", keys...)
	seen(t, "the group moves to another hub: its devices register again, and send there")
	require.Zero(t, f.count("unhandled", "")+f.count("uncaught", ""))
}

func TestDeviceSDKIsRefusedByTheDPS(t *testing.T) {
	t.Parallel()
	f := startFleet(t)
	other := f.enroll(dpsdata.Enrollment{ID: "other"})
	var wrong, unknown, off, asked []*provisioned
	for _, way := range sdkTransports {
		device := func(what, key string) *provisioned {
			return &provisioned{name: what + "-" + way.name, transport: way.name, key: key}
		}
		f.enroll(dpsdata.Enrollment{ID: "wrong-" + way.name})
		wrong = append(wrong, device("wrong", other.PrimaryKey))
		unknown = append(unknown, device("unknown", other.PrimaryKey))
		disabled := f.enroll(dpsdata.Enrollment{ID: "off-" + way.name, Disabled: true})
		off = append(off, device("off", disabled.PrimaryKey))
		custom := f.enroll(dpsdata.Enrollment{
			ID: "asked-" + way.name, Allocation: dpsdata.AllocationCustom,
			Allocate: func(r dpsdata.AllocationRequest) (dpsdata.AllocationResult, error) {
				return dpsdata.AllocationResult{Hub: hubB, Payload: []byte(`{"given":` + string(r.Payload) + `}`)}, nil
			},
		})
		asked = append(asked, device("asked", custom.PrimaryKey))
	}
	busy := map[string]*testbroker.Injected{}
	for _, d := range asked {
		if d.transport != "http" { // over HTTP the SDK gives up
			busy[d.name] = f.dps.Inject(fault.Fault{
				Kind: fault.RefuseProvisioning, Device: d.name, Route: fault.RouteRegister, RetryAfter: time.Second,
			})
			f.dps.Inject(fault.Fault{
				Kind: fault.RefuseProvisioning, Device: d.name, Route: fault.RouteOperation, Status: 503, RetryAfter: time.Second,
			})
		}
	}
	texts := f.register(map[string]any{"model": 7}, slices.Concat(wrong, unknown, off, asked)...)
	for what, devices := range map[string][]*provisioned{
		"another device's key": wrong, "not enrolled": unknown, "disabled": off,
	} {
		for _, d := range devices {
			require.NotEmpty(t, texts[d.name])
			seen(t, "%s, over %s: %s", what, d.transport, texts[d.name])
		}
	}
	for _, d := range asked {
		require.Empty(t, texts[d.name], d.name)
		require.Equal(t, hubB, d.state.AssignedHub)
		require.JSONEq(t, `{"given":{"model":7}}`, string(d.state.Payload))
		if in := busy[d.name]; in != nil {
			require.Equal(t, 1, in.Fired(), d.name)
		}
	}
	seen(t, "payloads in both directions over 5 transports; 429 and 503 are waited for over all but http")
	require.Zero(t, f.count("unhandled", "")+f.count("uncaught", ""))
}
