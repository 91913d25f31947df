package dps_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

const dpsVersion = "?api-version=2019-03-31"

// newDPS makes a provisioning service with linked hubs of the given names.
func newDPS(t testing.TB, o *testbroker.DPSOptions, names ...string) (*testbroker.DPS, map[string]*testbroker.Hub) {
	d, err := testbroker.NewDPS(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	hubs := make(map[string]*testbroker.Hub)
	for _, name := range names {
		h, err := testbroker.New(&testbroker.Options{HostName: name})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, h.Close()) })
		require.NoError(t, d.Link(h))
		hubs[name] = h
	}
	return d, hubs
}

func enroll(t testing.TB, d *testbroker.DPS, e dpsdata.Enrollment) dpsdata.Enrollment {
	e, err := d.Enroll(e)
	require.NoError(t, err)
	return e
}

// withDevice runs f in fake time with a hub and the enrollment of reg-1, which has keys.
func withDevice(t *testing.T, f func(t *testing.T, d *testbroker.DPS, e dpsdata.Enrollment)) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newDPS(t, nil, "hub-a.example.test")
		f(t, d, enroll(t, d, dpsdata.Enrollment{ID: "reg-1"}))
	})
}

// dpsToken returns a token for a registration that is valid for an hour.
func dpsToken(d *testbroker.DPS, id, key string) string {
	sr := url.QueryEscape(d.IDScope() + "/registrations/" + id)
	return hubtest.Sign(sr, key, time.Now().Add(time.Hour).Unix()) + "&skn=registration"
}

// A dpsAnswer is the answer of a provisioning service over any protocol.
type dpsAnswer struct {
	status     int
	retryAfter string
	body       string

	OperationID string
	Status      string
	State       struct {
		RegistrationID, AssignedHub, DeviceID, Status, Substatus string
		ErrorCode                                                int
		ErrorMessage                                             string
		Payload                                                  json.RawMessage
		SymmetricKey                                             *struct{ EnrollmentGroupID string }
		X509                                                     *struct {
			CertificateInfo   struct{ SubjectName, SHA256Thumbprint string }
			EnrollmentGroupID string
		}
		IssuedCertificateChain []string
		ConnectionProfile      string
	} `json:"registrationState"`
	ErrorCode  int
	Message    string
	TrackingID string
}

// decodeAnswer parses the body, unless a fault has garbled it.
func decodeAnswer(a *dpsAnswer) { json.Unmarshal([]byte(a.body), a) }

// overDPS returns a client over HTTPS in memory, and its requests.
func overDPS(t testing.TB, d *testbroker.DPS) *hubtest.Poster {
	p := hubtest.NewPoster(t, d.Dial(testbroker.PortHTTPS), d.ClientTLS(), "")
	p.Base = "https://" + d.HostName()
	return p
}

// overDPSAs is overDPS with a token for reg-1.
func overDPSAs(t testing.TB, d *testbroker.DPS, e dpsdata.Enrollment) *hubtest.Poster {
	p := overDPS(t, d)
	p.Token = dpsToken(d, "reg-1", e.PrimaryKey)
	return p
}

func provision(p *hubtest.Poster, method, path, body string) dpsAnswer {
	a, err := tryDPS(p, method, path, body)
	require.NoError(p.T, err)
	require.NoError(p.T, json.Unmarshal([]byte(a.body), &a), a.body)
	return a
}

func tryDPS(p *hubtest.Poster, method, path, body string) (dpsAnswer, error) {
	r, err := p.Try(method, path, body, "Content-Type", "application/json")
	if err != nil {
		return dpsAnswer{}, err
	}
	a := dpsAnswer{status: r.StatusCode, body: r.Text, retryAfter: r.Header.Get("Retry-After")}
	decodeAnswer(&a)
	return a, nil
}

func register(p *hubtest.Poster, id, body string) dpsAnswer {
	return provision(p, "PUT", "/"+testScope+"/registrations/"+id+"/register"+dpsVersion, body)
}

func poll(p *hubtest.Poster, id, operation string) dpsAnswer {
	return provision(p, "GET", "/"+testScope+"/registrations/"+id+"/operations/"+operation+dpsVersion, "")
}

const testScope = "0ne00ABCDEF"

// assigned registers and polls until the registration is decided.
func assigned(p *hubtest.Poster, id, body string) dpsAnswer {
	a := register(p, id, body)
	for a.status == 202 {
		a = poll(p, id, a.OperationID)
	}
	require.Equal(p.T, 200, a.status, a.body)
	require.NotEmpty(p.T, a.OperationID)
	return a
}

func TestIndividualRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, hubs := newDPS(t, nil, "hub-a.example.test")
		e := enroll(t, d, dpsdata.Enrollment{ID: "Reg-1", DeviceID: "device-1", Tags: `{"site":"x"}`, Desired: `{"n":1}`})
		for name, key := range map[string]string{"primary": e.PrimaryKey, "secondary": e.SecondaryKey} {
			p := overDPS(t, d)
			p.Token = dpsToken(d, "reg-1", key)
			a := register(p, "reg-1", `{"registrationId":"REG-1"}`)
			require.Equal(t, 202, a.status, name)
			require.Equal(t, "assigning", a.Status)
			require.Equal(t, "3", a.retryAfter)
			require.NotEmpty(t, a.OperationID)
			a = poll(p, "reg-1", a.OperationID)
			require.Equal(t, 200, a.status)
			require.Empty(t, a.retryAfter)
			require.Equal(t, "assigned", a.Status)
			require.Equal(t, "assigned", a.State.Status)
			require.Equal(t, "hub-a.example.test", a.State.AssignedHub)
			require.Equal(t, "device-1", a.State.DeviceID)
			require.Equal(t, "reg-1", a.State.RegistrationID)
			require.Equal(t, "initialAssignment", a.State.Substatus)
			require.NotNil(t, a.State.SymmetricKey)
			require.Nil(t, a.State.X509)
		}
		h := hubs["hub-a.example.test"]
		dev := hubtest.Registered(t, h, "device-1")
		require.Equal(t, e.PrimaryKey, dev.PrimaryKey)
		require.Equal(t, e.SecondaryKey, dev.SecondaryKey)
		twin := hubtest.Twin(t, h, "device-1")
		require.JSONEq(t, `{"site":"x"}`, string(twin.Tags))
		require.JSONEq(t, `{"n":1}`, string(twin.Desired))
		require.EqualValues(t, 2, twin.DesiredVersion, "the second registration leaves the twin alone")

		r, err := d.Registration("REG-1")
		require.NoError(t, err)
		require.Equal(t, "assigned", r.Status)
		require.Equal(t, "hub-a.example.test", r.Hub)
		require.Equal(t, 0, r.Moves)
		log := d.Requests()
		require.Len(t, log, 4)
		require.Equal(t, dpsdata.OperationRegister, log[0].Operation)
		require.Equal(t, dpsdata.OperationPoll, log[1].Operation)
		require.Equal(t, log[0].OperationID, log[1].OperationID)
		require.Equal(t, hubdata.HTTP, log[0].Protocol)
		require.Equal(t, "2019-03-31", log[0].APIVersion)
		require.Equal(t, 202, log[0].Status)
		require.Equal(t, "3", log[0].RetryAfter)
	})
}

// The vectors are those of the service's documents and of two implementations.
func TestKeysOfGroups(t *testing.T) {
	raw := make([]byte, 64)
	for i := range raw {
		raw[i] = byte(i)
	}
	key := base64.StdEncoding.EncodeToString(raw)
	require.Equal(t, "icIMXjwja1qYKoscSejYuXU0CWOBN4+SKhfWq13SBnA=", dpsdata.DeriveKey(key, "reg-0001"))
	require.Equal(t, "qHzNPEgMdhD8Xx2ZfimOhdY6ElEo5KbdyCwqvzRps5Y=", dpsdata.DeriveKey(key, "Reg-0001"))
	require.Equal(t, "Jsm0lyGpjaVYVP2g3FnmnmG9dI/9qU24wNoykUmermc=", dpsdata.DeriveKey(
		"8isrFI1sGsIlvvFSSFRiMfCNzv21fjbE/+ah/lSh3lF8e2YG1Te7w1KpZhJFFXJrqYKi9yegxkqIChbqOS9Egw==",
		"sn-007-888-abc-mac-a1-b2-c3-d4-e5-f6"))
}

func TestDevicesOfAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, hubs := newDPS(t, &testbroker.DPSOptions{Polls: -1}, "hub-a.example.test")
		g := enroll(t, d, dpsdata.Enrollment{ID: "grp-1", Group: true})
		enroll(t, d, dpsdata.Enrollment{ID: "grp-2", Group: true})
		own := enroll(t, d, dpsdata.Enrollment{ID: "Dev-Own"})
		p := overDPS(t, d)
		for id, key := range map[string]string{
			"Dev-A": dpsdata.DeriveKey(g.PrimaryKey, "Dev-A"),
			"Dev-B": dpsdata.DeriveKey(g.SecondaryKey, "dev-b"), // as the documents say
			"dev-c": dpsdata.DeriveKey(g.PrimaryKey, "dev-c"),
		} {
			p.Token = dpsToken(d, id, key)
			a := register(p, id, "")
			require.Equal(t, 200, a.status, a.body)
			require.Equal(t, "assigned", a.Status)
			require.Equal(t, "grp-1", a.State.SymmetricKey.EnrollmentGroupID)
			require.Equal(t, id, a.State.DeviceID)
			dev, err := hubs["hub-a.example.test"].Device(id)
			require.NoError(t, err)
			require.Contains(t, []string{dev.PrimaryKey, dev.SecondaryKey}, key)
		}
		p.Token = dpsToken(d, "dev-own", dpsdata.DeriveKey(g.PrimaryKey, "dev-own"))
		require.Equal(t, 401002, register(p, "dev-own", "").ErrorCode, "the individual enrollment comes first")
		p.Token = dpsToken(d, "dev-own", own.PrimaryKey)
		require.Equal(t, 200, register(p, "dev-own", "").status)
	})
}

func TestTokensForRegistrations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newDPS(t, &testbroker.DPSOptions{Polls: -1}, "hub-a.example.test")
		e := enroll(t, d, dpsdata.Enrollment{ID: "reg-1"})
		p := overDPS(t, d)
		hour := time.Now().Add(time.Hour).Unix()
		resource := d.IDScope() + "/registrations/reg-1"
		for name, c := range map[string]struct {
			token string
			code  int // zero = accepted
		}{
			"skn":                 {dpsToken(d, "reg-1", e.PrimaryKey), 0},
			"empty skn":           {hubtest.Sign(url.QueryEscape(resource), e.PrimaryKey, hour) + "&skn=", 0},
			"no skn":              {hubtest.Sign(url.QueryEscape(resource), e.PrimaryKey, hour), 0},
			"another key name":    {hubtest.Sign(url.QueryEscape(resource), e.PrimaryKey, hour) + "&skn=mine", 0},
			"lower case":          {hubtest.Sign(strings.ReplaceAll(resource, "/", "%2f"), e.PrimaryKey, hour), 0},
			"not encoded":         {hubtest.Sign(resource, e.PrimaryKey, hour), 0},
			"expired in grace":    {hubtest.Sign(resource, e.PrimaryKey, time.Now().Add(-4*time.Minute).Unix()), 0},
			"expired":             {hubtest.Sign(resource, e.PrimaryKey, time.Now().Add(-6*time.Minute).Unix()), 401002},
			"another key":         {hubtest.Sign(resource, dpsdata.DeriveKey(e.PrimaryKey, "x"), hour), 401002},
			"another resource":    {hubtest.Sign(d.IDScope()+"/registrations/reg-2", e.PrimaryKey, hour), 401002},
			"the scope's":         {hubtest.Sign(d.IDScope(), e.PrimaryKey, hour), 401002},
			"no token":            {"", 401002},
			"not a token":         {"Bearer abc", 401002},
			"signature not coded": {strings.Replace(hubtest.Sign(resource, e.PrimaryKey, hour), "%3D", "=", 1), 401002},
		} {
			p.Token = c.token
			a := register(p, "reg-1", "")
			require.Equal(t, c.code, a.ErrorCode, "%s: %s", name, a.body)
			if c.code != 0 {
				require.Equal(t, c.code/1000, a.status)
				require.NotEmpty(t, a.Message)
				require.NotEmpty(t, a.TrackingID)
			}
		}
	})
}

func TestRefusedRegistrations(t *testing.T) {
	withDevice(t, func(t *testing.T, d *testbroker.DPS, e dpsdata.Enrollment) {
		other := enroll(t, d, dpsdata.Enrollment{ID: "reg-2"})
		p := overDPSAs(t, d, e)
		operation := register(p, "reg-1", "").OperationID
		long := `{"payload":"` + strings.Repeat("x", 64<<10) + `"}`
		for name, c := range map[string]struct {
			id, path, body string
			code           int
		}{
			"unknown version":      {"reg-1", "/register?api-version=2001-01-01", "", 400004},
			"no version":           {"reg-1", "/register", "", 400004},
			"bad JSON":             {"reg-1", "/register" + dpsVersion, "{", 400004},
			"not an object":        {"reg-1", "/register" + dpsVersion, "[]", 400004},
			"id of another":        {"reg-1", "/register" + dpsVersion, `{"registrationId":"reg-2"}`, 400004},
			"payload too long":     {"reg-1", "/register" + dpsVersion, long, 400004},
			"body too long":        {"reg-1", "/register" + dpsVersion, long + strings.Repeat(" ", 96<<10), 400004},
			"csr of a new version": {"reg-1", "/register" + dpsVersion, `{"csr":"AAAA"}`, 400004},
			"csr that is none":     {"reg-1", "/register?api-version=2025-07-01-preview", `{"csr":"AAAA"}`, 400004},
			"not enrolled":         {"reg-9", "/register" + dpsVersion, "", 404201},
			"impossible id":        {"reg%209", "/register" + dpsVersion, "", 400004},
			"id with a dot last":   {"reg.", "/register" + dpsVersion, "", 400004},
			"operation of another": {"reg-2", "/operations/" + operation + dpsVersion, "", 404000},
			"unknown operation":    {"reg-1", "/operations/5.x" + dpsVersion, "", 404000},
		} {
			method := "PUT"
			if strings.HasPrefix(c.path, "/operations") {
				method = "GET"
			}
			id, err := url.PathUnescape(c.id)
			require.NoError(t, err)
			key := e.PrimaryKey
			if id == "reg-2" {
				key = other.PrimaryKey
			}
			p.Token = dpsToken(d, id, key)
			a := provision(p, method, "/"+testScope+"/registrations/"+c.id+c.path, c.body)
			require.Equal(t, c.code, a.ErrorCode, "%s: %s", name, a.body)
			require.Equal(t, c.code/1000, a.status, name)
		}
		a := provision(p, "PUT", "/0ne00ABCDE0/registrations/reg-1/register"+dpsVersion, "")
		require.Equal(t, 404201, a.ErrorCode, "another scope")
		log := d.Requests()
		require.Equal(t, 404201, log[len(log)-1].ErrorCode)
	})
}

func TestAllocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names := []string{"hub-a.example.test", "hub-b.example.test", "hub-c.example.test"}
		d, hubs := newDPS(t, &testbroker.DPSOptions{Polls: -1}, names...)
		groups := make(map[dpsdata.Allocation]dpsdata.Enrollment)
		for rule, id := range map[dpsdata.Allocation]string{
			dpsdata.AllocationHashed: "hashed", dpsdata.AllocationFixed: "fixed", dpsdata.AllocationRoundRobin: "turns",
		} {
			groups[rule] = enroll(t, d, dpsdata.Enrollment{ID: id, Group: true, Allocation: rule, Hubs: names[:2]})
		}
		p := overDPS(t, d)
		at := func(rule dpsdata.Allocation, n int) string {
			id := fmt.Sprintf("%s-%d", groups[rule].ID, n)
			p.Token = dpsToken(d, id, dpsdata.DeriveKey(groups[rule].PrimaryKey, id))
			return assigned(p, id, "").State.AssignedHub
		}
		count := make(map[string]int)
		for n := range 40 {
			require.Equal(t, names[0], at(dpsdata.AllocationFixed, n))
			hub := at(dpsdata.AllocationHashed, n)
			require.Equal(t, hub, at(dpsdata.AllocationHashed, n), "the choice depends on the id only")
			count[hub]++
			hub = at(dpsdata.AllocationRoundRobin, n)
			require.Equal(t, names[n%2], hub)
			require.Equal(t, hub, at(dpsdata.AllocationRoundRobin, n), "a registered device keeps its hub")
		}
		require.Len(t, count, 2)
		require.Greater(t, min(count[names[0]], count[names[1]]), 10)
		require.Empty(t, hubs[names[2]].Devices())
		require.NoError(t, d.Unlink(names[0]))
		require.NoError(t, d.Unlink(names[1]))
		a := assigned(p, fmt.Sprintf("%s-%d", "turns", 39), "")
		require.Equal(t, "failed", a.Status)
		require.Equal(t, 400208, a.State.ErrorCode)
	})
}

func TestCustomAllocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, hubs := newDPS(t, nil, "hub-a.example.test", "hub-b.example.test")
		var asked []dpsdata.AllocationRequest
		refuse := false
		e := enroll(t, d, dpsdata.Enrollment{
			ID: "reg-1", Allocation: dpsdata.AllocationCustom, Tags: `{"by":"enrollment"}`, Desired: `{"d":1}`,
			Allocate: func(r dpsdata.AllocationRequest) (dpsdata.AllocationResult, error) {
				asked = append(asked, r)
				if refuse {
					return dpsdata.AllocationResult{}, errors.New("no room")
				}
				return dpsdata.AllocationResult{
					Hub: "hub-b.example.test", Payload: json.RawMessage(`{"welcome":true}`), Tags: `{"by":"function"}`,
				}, nil
			},
		})
		p := overDPSAs(t, d, e)
		a := assigned(p, "reg-1", `{"payload":{"model":7}}`)
		require.Equal(t, "hub-b.example.test", a.State.AssignedHub)
		require.JSONEq(t, `{"welcome":true}`, string(a.State.Payload))
		require.Equal(t, []dpsdata.AllocationRequest{{
			EnrollmentID: "reg-1", RegistrationID: "reg-1", Hubs: []string{"hub-a.example.test", "hub-b.example.test"},
			Payload: json.RawMessage(`{"model":7}`),
		}}, asked)
		twin, err := hubs["hub-b.example.test"].Twin("reg-1")
		require.NoError(t, err)
		require.JSONEq(t, `{"by":"function"}`, string(twin.Tags))
		require.JSONEq(t, `{"d":1}`, string(twin.Desired))
		refuse = true
		a = assigned(p, "reg-1", "")
		require.Equal(t, "failed", a.Status)
		require.Equal(t, 400207, a.State.ErrorCode)
		require.Contains(t, a.State.ErrorMessage, "no room")
		require.Empty(t, a.State.AssignedHub)
		r, err := d.Registration("reg-1")
		require.NoError(t, err)
		require.Equal(t, "failed", r.Status)
		require.Equal(t, "hub-b.example.test", r.Hub, "a failure does not take the device away")
	})
}

func TestReprovisioning(t *testing.T) {
	for policy, want := range map[dpsdata.Reprovision]struct {
		hub, substatus, desired, reported string
		version                           int64
	}{
		dpsdata.ReprovisionMigrate: {"hub-b.example.test", "deviceDataMigrated", `{"n":2}`, `{"r":1}`, 3},
		dpsdata.ReprovisionReset:   {"hub-b.example.test", "deviceDataReset", `{"n":1}`, `{}`, 2},
		dpsdata.ReprovisionNever:   {"hub-a.example.test", "initialAssignment", `{"n":2}`, `{"r":1}`, 3},
	} {
		t.Run(policy.String(), func(t *testing.T) {
			d, hubs := newDPS(t, nil, "hub-a.example.test", "hub-b.example.test")
			e := enroll(t, d, dpsdata.Enrollment{
				ID: "reg-1", Hubs: []string{"hub-a.example.test"}, Reprovision: policy, Desired: `{"n":1}`,
			})
			p := overDPSAs(t, d, e)
			assigned(p, "reg-1", "")
			first := hubs["hub-a.example.test"]
			_, err := first.PatchDesired("reg-1", `{"n":2}`)
			require.NoError(t, err)
			dev, err := first.Device("reg-1")
			require.NoError(t, err)
			c := hubtest.Login(t, first, dev)
			c.Publish(1, `$iothub/twin/PATCH/properties/reported/?$rid=1`, `{"r":1}`)
			require.NoError(t, first.WaitReported(t.Context(), "reg-1", func(w hubdata.Twin) bool {
				return string(w.Reported) == `{"r":1}`
			}))

			require.NoError(t, d.Move("reg-1", "hub-b.example.test"))
			require.Equal(t, 1, first.Connections("reg-1"), "the device moves with its next registration")
			a := assigned(p, "reg-1", "")
			require.Equal(t, want.hub, a.State.AssignedHub)
			require.Equal(t, want.substatus, a.State.Substatus)
			twin, err := hubs[want.hub].Twin("reg-1")
			require.NoError(t, err)
			require.JSONEq(t, want.desired, string(twin.Desired))
			require.JSONEq(t, want.reported, string(twin.Reported))
			require.Equal(t, want.version, twin.DesiredVersion)
			_, err = first.Device("reg-1")
			if policy == dpsdata.ReprovisionNever {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, testbroker.ErrNotFound)
			again := assigned(p, "reg-1", "")
			require.Equal(t, want.substatus, again.State.Substatus)
			r, err := d.Registration("reg-1")
			require.NoError(t, err)
			require.Equal(t, 1, r.Moves)
		})
	}
}

func TestDisabledAndDeletedEnrollments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, hubs := newDPS(t, nil, "hub-a.example.test")
		e := enroll(t, d, dpsdata.Enrollment{ID: "reg-1"})
		_, err := d.Enroll(dpsdata.Enrollment{ID: "REG-1"})
		require.ErrorIs(t, err, testbroker.ErrEnrolled)
		p := overDPSAs(t, d, e)
		require.NoError(t, d.SetEnabled("reg-1", false))
		a := assigned(p, "reg-1", "")
		require.Equal(t, "disabled", a.Status)
		require.Equal(t, "disabled", a.State.Status)
		require.Empty(t, hubs["hub-a.example.test"].Devices())
		require.NoError(t, d.SetEnabled("reg-1", true))
		require.Equal(t, "assigned", assigned(p, "reg-1", "").Status)
		require.NoError(t, hubs["hub-a.example.test"].RemoveDevice("reg-1"))
		require.Equal(t, "assigned", assigned(p, "reg-1", "").Status)
		require.Len(t, hubs["hub-a.example.test"].Devices(), 1, "a device that was removed at its hub is made again")
		require.NoError(t, d.Delete("reg-1"))
		require.Equal(t, 404201, register(p, "reg-1", "").ErrorCode)
		require.Empty(t, d.Registrations())
		require.ErrorIs(t, d.Delete("reg-1"), testbroker.ErrNotEnrolled)
		e = enroll(t, d, dpsdata.Enrollment{ID: "reg-1"})
		p.Token = dpsToken(d, "reg-1", e.PrimaryKey)
		require.Equal(t, "assigned", assigned(p, "reg-1", "").Status)
		dev, err := hubs["hub-a.example.test"].Device("reg-1")
		require.NoError(t, err)
		require.Equal(t, e.PrimaryKey, dev.PrimaryKey, "the device has the keys of the new enrollment")
	})
}

func TestRegistrationsInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newDPS(t, &testbroker.DPSOptions{
			Polls: 3, Assigning: time.Minute, RetryAfter: 90 * time.Second, Keep: 3,
		}, "hub-a.example.test")
		e := enroll(t, d, dpsdata.Enrollment{ID: "reg-1"})
		p := overDPSAs(t, d, e)
		a := register(p, "reg-1", "")
		require.Equal(t, "90", a.retryAfter)
		operation := a.OperationID
		for range 3 {
			require.Equal(t, 202, poll(p, "reg-1", operation).status)
		}
		time.Sleep(time.Minute)
		require.Equal(t, 200, poll(p, "reg-1", operation).status)
		require.Equal(t, 200, poll(p, "reg-1", operation).status, "the result stays")
		a = register(p, "reg-1", "")
		require.NotEqual(t, operation, a.OperationID)
		time.Sleep(time.Minute)
		require.Equal(t, 202, poll(p, "reg-1", a.OperationID).status)
		require.Equal(t, 202, poll(p, "reg-1", a.OperationID).status)
		require.Equal(t, 200, poll(p, "reg-1", a.OperationID).status)
		require.Len(t, d.Requests(), 3)
		a = provision(p, "POST", "/"+testScope+"/registrations/reg-1"+dpsVersion, `{"registrationId":"reg-1"}`)
		require.Equal(t, 200, a.status)
		require.Contains(t, a.body, `"assignedHub":"hub-a.example.test"`)
	})
}

func TestRegistrationsAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newDPS(t, &testbroker.DPSOptions{Polls: -1, RegistrationsPerMinute: 2}, "hub-a.example.test")
		e := enroll(t, d, dpsdata.Enrollment{ID: "reg-1"})
		p := overDPSAs(t, d, e)
		for range 2 {
			require.Equal(t, 200, register(p, "reg-1", "").status)
		}
		time.Sleep(20 * time.Second)
		a := register(p, "reg-1", "")
		require.Equal(t, 429, a.status)
		require.Equal(t, 429001, a.ErrorCode)
		require.Equal(t, "40", a.retryAfter)
		time.Sleep(40 * time.Second)
		require.Equal(t, 200, register(p, "reg-1", "").status)
	})
}

func TestRegistrationWithCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, hubs := newDPS(t, &testbroker.DPSOptions{Polls: -1}, "hub-a.example.test")
		h := hubs["hub-a.example.test"]
		root := testbroker.NewCertAuthority("root")
		sub := root.NewAuthority("sub")
		own := testbroker.NewClientCert("reg-own", time.Time{}, time.Time{})
		enroll(t, d, dpsdata.Enrollment{ID: "reg-own", Certificates: []*x509.Certificate{own.Leaf}})
		old := testbroker.NewClientCert("reg-old", time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour))
		enroll(t, d, dpsdata.Enrollment{ID: "reg-old", Certificates: []*x509.Certificate{old.Leaf}})
		enroll(t, d, dpsdata.Enrollment{ID: "grp-ca", Group: true, Certificates: []*x509.Certificate{root.Cert()}})
		signed := func(name string) func() tls.Certificate {
			return func() tls.Certificate { return sub.NewClientCert(name, time.Time{}, time.Time{}) }
		}
		stranger := testbroker.NewCertAuthority("root")
		for _, c := range []struct {
			name, id string
			cert     func() tls.Certificate
			code     int
			group    string
		}{
			{"own", "reg-own", func() tls.Certificate { return own }, 0, ""},
			{"own, expired", "reg-old", func() tls.Certificate { return old }, 401002, ""},
			{"chain of a group", "reg-ca", signed("reg-ca"), 0, "grp-ca"},
			{"other letter case", "REG-CB", signed("reg-cb"), 0, "grp-ca"},
			{"copy of the own", "reg-own", func() tls.Certificate {
				return testbroker.NewClientCert("reg-own", time.Time{}, time.Time{})
			}, 401002, ""},
			{"name of another", "reg-cc", signed("reg-cd"), 401002, ""},
			{"strange authority", "reg-cc", func() tls.Certificate {
				return stranger.NewClientCert("reg-cc", time.Time{}, time.Time{})
			}, 401002, ""},
			{"expired", "reg-cc", func() tls.Certificate {
				return sub.NewClientCert("reg-cc", time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour))
			}, 401002, ""},
			{"without the chain", "reg-cc", func() tls.Certificate {
				cert := sub.NewClientCert("reg-cc", time.Time{}, time.Time{})
				cert.Certificate = cert.Certificate[:1]
				return cert
			}, 401002, ""},
		} {
			config := d.ClientTLS()
			cert := c.cert()
			config.Certificates = []tls.Certificate{cert}
			p := hubtest.NewPoster(t, d.Dial(testbroker.PortHTTPS), config, "")
			p.Base = "https://" + d.HostName()
			a := register(p, c.id, "")
			require.Equal(t, c.code, a.ErrorCode, "%s: %s", c.name, a.body)
			if c.name == "without the chain" {
				require.Contains(t, a.body, `a chain of 1, whose last certificate is issued by \"sub\"`)
			}
			if c.code != 0 {
				continue
			}
			require.Equal(t, "assigned", a.Status)
			require.Equal(t, testbroker.Thumbprint(cert.Leaf), a.State.X509.CertificateInfo.SHA256Thumbprint)
			require.Equal(t, c.group, a.State.X509.EnrollmentGroupID)
			require.Nil(t, a.State.SymmetricKey)
			dev := hubtest.Registered(t, h, a.State.DeviceID)
			require.Empty(t, dev.PrimaryKey)
		}
	})
}

func TestDPSFaultsOfConnectionsAndRequests(t *testing.T) {
	withDevice(t, func(t *testing.T, d *testbroker.DPS, e dpsdata.Enrollment) {
		p := overDPSAs(t, d, e)
		busy := d.Inject(fault.Fault{
			Kind: fault.AnswerStatus, Device: "reg-1", Route: fault.RouteOperation, RetryAfter: 7 * time.Second,
		})
		lost := d.Inject(fault.Fault{Kind: fault.ResetAfterRequest, Route: fault.RouteRegister})
		_, err := p.Try("PUT", "/"+testScope+"/registrations/reg-1/register"+dpsVersion, "")
		require.Error(t, err)
		require.NoError(t, lost.WaitFired(t.Context(), 1))
		require.Len(t, d.Requests(), 1, "the registration is stored")
		a := register(p, "reg-1", "")
		r := p.Do("GET", "/"+testScope+"/registrations/reg-1/operations/"+a.OperationID+dpsVersion, "")
		require.Equal(t, 503, r.StatusCode)
		require.Equal(t, "7", r.Header.Get("Retry-After"))
		require.Equal(t, 1, busy.Fired())
		require.Equal(t, 200, poll(p, "reg-1", a.OperationID).status)
		d.Inject(fault.Fault{Kind: fault.Absent, For: time.Minute})
		_, err = p.Try("PUT", "/"+testScope+"/registrations/reg-1/register"+dpsVersion, "")
		require.Error(t, err)
		time.Sleep(time.Minute)
		require.Equal(t, 202, register(p, "reg-1", "").status)
	})
}

func TestEventsOfRegistrations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []string
		d, _ := newDPS(t, &testbroker.DPSOptions{OnEvent: func(e event.Event) {
			if e.Kind == event.RegistrationAnswered {
				all = append(all, e.String())
			}
		}}, "hub-a.example.test")
		e := enroll(t, d, dpsdata.Enrollment{ID: "reg-1"})
		p := overDPSAs(t, d, e)
		assigned(p, "reg-1", "")
		require.NoError(t, d.SetEnabled("reg-1", false))
		assigned(p, "reg-1", "")
		require.NoError(t, d.SetEnabled("reg-1", true))
		require.NoError(t, d.Unlink("hub-a.example.test"))
		assigned(p, "reg-1", "")
		register(p, "reg-1", "{")
		provision(p, "POST", "/"+testScope+"/registrations/reg-1"+dpsVersion, "")
		require.Equal(t, []string{
			"#1 reg-1 register: status 202",
			"#1 reg-1 poll: status 200, assigned to hub-a.example.test",
			"#1 reg-1 register: status 202",
			"#1 reg-1 poll: status 200: disabled",
			"#1 reg-1 register: status 202",
			"#1 reg-1 poll: status 200: 400208: no hub to choose from: none is linked",
			"#1 reg-1 register: status 400: 400004: body is not a registration in JSON",
			"#1 reg-1 lookup: status 200: 400208: no hub to choose from: none is linked",
		}, all)
	})
}
