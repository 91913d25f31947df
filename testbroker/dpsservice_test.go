package testbroker_test

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
)

const dpsServiceVersion = "?api-version=2021-10-01"

// dpsBackEnd returns a back end of the service.
func dpsBackEnd(t testing.TB, d *testbroker.DPS) *poster {
	policy, err := d.AddPolicy("provisioningserviceowner")
	require.NoError(t, err)
	require.Contains(t, policy.ConnectionString(), "HostName="+d.HostName()+";SharedAccessKeyName=")
	p := overDPS(t, d)
	p.token = sign(url.QueryEscape(d.HostName()), policy.PrimaryKey, time.Now().Add(time.Hour).Unix()) +
		"&skn=provisioningserviceowner"
	return p
}

// ask sends a request, whose answer must have the status, and returns its JSON.
func (p *poster) ask(status int, method, path, body string, header ...string) (reply, map[string]any) {
	p.t.Helper()
	r := p.do(method, path+dpsServiceVersion, body, header...)
	require.Equal(p.t, status, r.StatusCode, r.body)
	var got map[string]any
	json.Unmarshal([]byte(r.body), &got)
	return r, got
}

func TestEnrollmentsOfABackEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newDPS(t, &testbroker.DPSOptions{Polls: -1}, "hub-a.example.test")
		p := dpsBackEnd(t, d)
		body := `{"registrationId":"reg-1","deviceId":"device-1","attestation":{"type":"symmetricKey"},
			"provisioningStatus":"enabled","iotHubHostName":"hub-a.example.test","allocationPolicy":"static",
			"initialTwin":{"tags":{"a":1},"properties":{"desired":{"b":2}}},
			"reprovisionPolicy":{"updateHubAssignment":true,"migrateDeviceData":false},"capabilities":{"iotEdge":false}}`
		_, got := p.ask(200, "PUT", "/enrollments/reg-1", body)
		keys := got["attestation"].(map[string]any)["symmetricKey"].(map[string]any)
		e, err := d.Enrollment("reg-1")
		require.NoError(t, err)
		require.Equal(t, keys["primaryKey"], e.PrimaryKey)
		require.Equal(t, dpsdata.Enrollment{
			ID: "reg-1", PrimaryKey: e.PrimaryKey, SecondaryKey: e.SecondaryKey, DeviceID: "device-1",
			Hubs: []string{"hub-a.example.test"}, Allocation: dpsdata.Fixed, Reprovision: dpsdata.Reset, Tags: `{"a":1}`,
			Desired: `{"b":2}`,
		}, e)
		p.ask(409, "PUT", "/enrollments/reg-1", body)
		r, got := p.ask(200, "GET", "/enrollments/reg-1", "")
		require.Equal(t, "enabled", got["provisioningStatus"])
		require.NotContains(t, r.body, e.PrimaryKey, "only some answers have keys")
		_, mechanism := p.ask(200, "POST", "/enrollments/reg-1/attestationmechanism", "")
		require.Equal(t, keys, mechanism["symmetricKey"])

		got["provisioningStatus"] = "disabled"
		changed, err := json.Marshal(got)
		require.NoError(t, err)
		etag := fmt.Sprintf("%q", got["etag"])
		p.ask(412, "PUT", "/enrollments/reg-1", string(changed), "If-Match", `"x"`)
		_, got = p.ask(200, "PUT", "/enrollments/reg-1", string(changed), "If-Match", etag)
		require.NotEqual(t, etag, fmt.Sprintf("%q", got["etag"]))
		after, err := d.Enrollment("reg-1")
		require.NoError(t, err)
		require.True(t, after.Disabled)
		require.Equal(t, e.PrimaryKey, after.PrimaryKey, "keys that are left out stay")
		p.ask(412, "DELETE", "/enrollments/reg-1", "", "If-Match", etag)
		p.ask(204, "DELETE", "/enrollments/reg-1", "")
		p.ask(404, "GET", "/enrollments/reg-1", "")
		p.ask(404, "DELETE", "/enrollments/reg-1", "")
	})
}

func TestGroupsOfABackEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newDPS(t, &testbroker.DPSOptions{Polls: -1}, "hub-a.example.test")
		p := dpsBackEnd(t, d)
		ca := testbroker.NewCertAuthority("root")
		text, err := json.Marshal(string(pemOf(ca.Cert())))
		require.NoError(t, err)
		_, got := p.ask(200, "PUT", "/enrollmentGroups/grp-x", fmt.Sprintf(`{"enrollmentGroupId":"grp-x","attestation":
			{"type":"x509","x509":{"signingCertificates":{"primary":{"certificate":%s}}}}}`, text))
		require.Equal(t, "grp-x", got["enrollmentGroupId"])
		e, err := d.Enrollment("grp-x")
		require.NoError(t, err)
		require.True(t, e.Certificates[0].Equal(ca.Cert()))
		_, got = p.ask(200, "PUT", "/enrollmentGroups/grp-1",
			`{"enrollmentGroupId":"grp-1","attestation":{"type":"symmetricKey"}}`)
		key := got["attestation"].(map[string]any)["symmetricKey"].(map[string]any)["primaryKey"].(string)
		for n := range 3 {
			id := fmt.Sprint("reg-", n)
			device := overDPS(t, d)
			device.token = dpsToken(d, id, dpsdata.DeriveKey(key, id))
			require.Equal(t, "assigned", device.register(id, "").Status)
		}
		r := p.do("POST", "/enrollmentGroups/query"+dpsServiceVersion, `{"query":"*"}`, "x-ms-max-item-count", "1")
		require.Equal(t, "1", r.Header.Get("x-ms-continuation"))
		require.Contains(t, r.body, `"grp-1"`)
		r = p.do("POST", "/enrollmentGroups/query"+dpsServiceVersion, `{"query":"*"}`, "x-ms-continuation", "1")
		require.Empty(t, r.Header.Get("x-ms-continuation"))
		require.Contains(t, r.body, `"grp-x"`)
		r, _ = p.ask(200, "POST", "/enrollments/query", `{"query":"*"}`)
		require.Equal(t, "[]", r.body)
		var states []map[string]any
		r, _ = p.ask(200, "POST", "/registrations/grp-1/query", "")
		require.NoError(t, json.Unmarshal([]byte(r.body), &states))
		require.Len(t, states, 3)
		_, got = p.ask(200, "GET", "/registrations/reg-1", "")
		require.Equal(t, "hub-a.example.test", got["assignedHub"])
		p.ask(204, "DELETE", "/registrations/reg-1", "")
		p.ask(404, "GET", "/registrations/reg-1", "")
		p.ask(404, "GET", "/enrollments/grp-1", "")
		p.ask(204, "DELETE", "/enrollmentGroups/grp-1", "")
		require.Empty(t, d.Registrations())
	})
}

func TestRefusedBackEndsOfTheDPS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newDPS(t, nil, "hub-a.example.test")
		p := dpsBackEnd(t, d)
		for name, body := range map[string]string{
			"not JSON":       "{",
			"another id":     `{"registrationId":"reg-2","attestation":{"type":"symmetricKey"}}`,
			"no attestation": `{"registrationId":"reg-1"}`,
			"tpm":            `{"registrationId":"reg-1","attestation":{"type":"tpm"}}`,
			"bad key": `{"registrationId":"reg-1","attestation":{"type":"symmetricKey",
				"symmetricKey":{"primaryKey":"x"}}}`,
			"bad status": `{"registrationId":"reg-1","attestation":{"type":"symmetricKey"},"provisioningStatus":"on"}`,
			"webhook":    `{"registrationId":"reg-1","attestation":{"type":"symmetricKey"},"allocationPolicy":"custom"}`,
			"bad certificate": `{"registrationId":"reg-1","attestation":{"type":"x509",
				"x509":{"clientCertificates":{"primary":{"certificate":"x"}}}}}`,
			"no certificate": `{"registrationId":"reg-1","attestation":{"type":"x509","x509":{}}}`,
		} {
			r, got := p.ask(400, "PUT", "/enrollments/reg-1", body)
			require.NotEmpty(t, got["message"], "%s: %s", name, r.body)
		}
		require.Empty(t, d.Enrollments())
		p.ask(400, "POST", "/enrollments/query", "", "x-ms-continuation", "x")
		require.Equal(t, 400, p.do("GET", "/enrollments/reg-1?api-version=1", "").StatusCode)
		good := p.token
		p.token = ""
		p.ask(401, "GET", "/enrollments/reg-1", "")
		e := enroll(t, d, dpsdata.Enrollment{ID: "reg-1"})
		p.token = dpsToken(d, "reg-1", e.PrimaryKey)
		p.ask(401, "GET", "/enrollments/reg-1", "")
		p.token = good
		p.ask(200, "GET", "/enrollments/reg-1", "")
	})
}

func pemOf(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
}
