package dps_test

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

const dpsServiceVersion = "?api-version=2021-10-01"

// dpsBackEnd returns a back end of the service.
func dpsBackEnd(t testing.TB, d *testbroker.DPS) *hubtest.Poster {
	policy, err := d.AddPolicy("provisioningserviceowner")
	require.NoError(t, err)
	require.Contains(t, policy.ConnectionString(), "HostName="+d.HostName()+";SharedAccessKeyName=")
	p := overDPS(t, d)
	p.Token = hubtest.Sign(url.QueryEscape(d.HostName()), policy.PrimaryKey, time.Now().Add(time.Hour).Unix()) +
		"&skn=provisioningserviceowner"
	return p
}

// ask sends a request, whose answer must have the status, and returns its JSON.
func ask(p *hubtest.Poster, status int, method, path, body string, header ...string) (hubtest.Reply, map[string]any) {
	p.T.Helper()
	r := p.Do(method, path+dpsServiceVersion, body, header...)
	require.Equal(p.T, status, r.StatusCode, r.Text)
	var got map[string]any
	json.Unmarshal([]byte(r.Text), &got)
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
		_, got := ask(p, 200, "PUT", "/enrollments/reg-1", body)
		keys := got["attestation"].(map[string]any)["symmetricKey"].(map[string]any)
		e, err := d.Enrollment("reg-1")
		require.NoError(t, err)
		require.Equal(t, keys["primaryKey"], e.PrimaryKey)
		require.Equal(t, dpsdata.Enrollment{
			ID: "reg-1", PrimaryKey: e.PrimaryKey, SecondaryKey: e.SecondaryKey, DeviceID: "device-1",
			Hubs: []string{"hub-a.example.test"}, Allocation: dpsdata.AllocationFixed,
			Reprovision: dpsdata.ReprovisionReset, Tags: `{"a":1}`,
			Desired: `{"b":2}`,
		}, e)
		ask(p, 409, "PUT", "/enrollments/reg-1", body)
		r, got := ask(p, 200, "GET", "/enrollments/reg-1", "")
		require.Equal(t, "enabled", got["provisioningStatus"])
		require.NotContains(t, r.Text, e.PrimaryKey, "only some answers have keys")
		_, mechanism := ask(p, 200, "POST", "/enrollments/reg-1/attestationmechanism", "")
		require.Equal(t, keys, mechanism["symmetricKey"])

		got["provisioningStatus"] = "disabled"
		changed, err := json.Marshal(got)
		require.NoError(t, err)
		etag := fmt.Sprintf("%q", got["etag"])
		ask(p, 412, "PUT", "/enrollments/reg-1", string(changed), "If-Match", `"x"`)
		_, got = ask(p, 200, "PUT", "/enrollments/reg-1", string(changed), "If-Match", etag)
		require.NotEqual(t, etag, fmt.Sprintf("%q", got["etag"]))
		after, err := d.Enrollment("reg-1")
		require.NoError(t, err)
		require.True(t, after.Disabled)
		require.Equal(t, e.PrimaryKey, after.PrimaryKey, "keys that are left out stay")
		ask(p, 412, "DELETE", "/enrollments/reg-1", "", "If-Match", etag)
		ask(p, 204, "DELETE", "/enrollments/reg-1", "")
		ask(p, 404, "GET", "/enrollments/reg-1", "")
		ask(p, 404, "DELETE", "/enrollments/reg-1", "")
		ask(p, 200, "PUT", "/enrollments/reg-1", body)
		ask(p, 412, "DELETE", "/enrollments/reg-1", "", "If-Match", etag)
	})
}

func TestGroupsOfABackEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newDPS(t, &testbroker.DPSOptions{Polls: -1}, "hub-a.example.test")
		p := dpsBackEnd(t, d)
		ca := testbroker.NewCertAuthority("root")
		text, err := json.Marshal(string(pemOf(ca.Cert())))
		require.NoError(t, err)
		_, got := ask(p, 200, "PUT", "/enrollmentGroups/grp-x", fmt.Sprintf(`{"enrollmentGroupId":"grp-x","attestation":
			{"type":"x509","x509":{"signingCertificates":{"primary":{"certificate":%s}}}}}`, text))
		require.Equal(t, "grp-x", got["enrollmentGroupId"])
		e, err := d.Enrollment("grp-x")
		require.NoError(t, err)
		require.True(t, e.Certificates[0].Equal(ca.Cert()))
		_, got = ask(p, 200, "PUT", "/enrollmentGroups/grp-1",
			`{"enrollmentGroupId":"grp-1","attestation":{"type":"symmetricKey"}}`)
		key := got["attestation"].(map[string]any)["symmetricKey"].(map[string]any)["primaryKey"].(string)
		for n := range 3 {
			id := fmt.Sprint("reg-", n)
			device := overDPS(t, d)
			device.Token = dpsToken(d, id, dpsdata.DeriveKey(key, id))
			require.Equal(t, "assigned", register(device, id, "").Status)
		}
		r := p.Do("POST", "/enrollmentGroups/query"+dpsServiceVersion, `{"query":"*"}`, "x-ms-max-item-count", "1")
		require.Equal(t, "1", r.Header.Get("x-ms-continuation"))
		require.Contains(t, r.Text, `"grp-1"`)
		r = p.Do("POST", "/enrollmentGroups/query"+dpsServiceVersion, `{"query":"*"}`, "x-ms-continuation", "1")
		require.Empty(t, r.Header.Get("x-ms-continuation"))
		require.Contains(t, r.Text, `"grp-x"`)
		r, _ = ask(p, 200, "POST", "/enrollments/query", `{"query":"*"}`)
		require.Equal(t, "[]", r.Text)
		var states []map[string]any
		r, _ = ask(p, 200, "POST", "/registrations/grp-1/query", "")
		require.NoError(t, json.Unmarshal([]byte(r.Text), &states))
		require.Len(t, states, 3)
		_, got = ask(p, 200, "GET", "/registrations/reg-1", "")
		require.Equal(t, "hub-a.example.test", got["assignedHub"])
		ask(p, 204, "DELETE", "/registrations/reg-1", "")
		ask(p, 404, "GET", "/registrations/reg-1", "")
		ask(p, 404, "GET", "/enrollments/grp-1", "")
		ask(p, 204, "DELETE", "/enrollmentGroups/grp-1", "")
		require.Empty(t, d.Registrations())
	})
}

func TestBulkEnrollments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newDPS(t, nil, "hub-a.example.test")
		p := dpsBackEnd(t, d)
		type failure struct {
			RegistrationID, EnrollmentGroupID string
			ErrorCode                         int
			ErrorStatus                       string
		}
		run := func(path, body string) (failed []failure) {
			t.Helper()
			r, _ := ask(p, 200, "POST", path, body)
			var result struct {
				IsSuccessful bool
				Errors       []failure
			}
			require.NoError(t, json.Unmarshal([]byte(r.Text), &result), r.Text)
			require.Contains(t, r.Text, `"errors":[`, "a list, even if it is empty")
			require.Equal(t, len(result.Errors) == 0, result.IsSuccessful)
			return result.Errors
		}
		one := func(id, more string) string {
			return `{"registrationId":"` + id + `","attestation":{"type":"symmetricKey"}` + more + `}`
		}
		require.Empty(t, run("/enrollments/", `{"mode":"create","enrollments":[`+one("reg-1", "")+","+one("reg-2", "")+`]}`))
		before, err := d.Enrollment("reg-1")
		require.NoError(t, err)
		failed := run("/enrollments", `{"mode":"create","enrollments":[`+one("reg-2", "")+","+one("reg-3", "")+`]}`)
		require.Len(t, failed, 1)
		require.Equal(t, "reg-2", failed[0].RegistrationID)
		require.Equal(t, 409000, failed[0].ErrorCode)
		require.Len(t, d.Enrollments(), 3, "the others are enrolled")

		disabled := `,"provisioningStatus":"disabled"`
		failed = run("/enrollments/", `{"mode":"update","enrollments":[`+one("reg-1", disabled)+","+one("reg-9", "")+`]}`)
		require.Len(t, failed, 1)
		require.Equal(t, 404201, failed[0].ErrorCode)
		after, err := d.Enrollment("reg-1")
		require.NoError(t, err)
		require.True(t, after.Disabled)
		require.Equal(t, before.PrimaryKey, after.PrimaryKey)
		_, got := ask(p, 200, "GET", "/enrollments/reg-1", "")
		etag := fmt.Sprintf(`,"etag":%q`, got["etag"])
		require.Empty(t, run("/enrollments/", `{"mode":"updateIfMatchETag","enrollments":[`+one("reg-1", etag)+`]}`))
		failed = run("/enrollments/", `{"mode":"updateIfMatchETag","enrollments":[`+one("reg-1", etag)+","+one("reg-2", "")+
			`]}`)
		require.Len(t, failed, 2)
		require.Equal(t, 412000, failed[0].ErrorCode)
		require.Equal(t, 412000, failed[1].ErrorCode)

		group := func(mode string) string {
			return `{"mode":"` + mode +
				`","enrollmentGroups":[{"enrollmentGroupId":"grp-1","attestation":{"type":"symmetricKey"}}]}`
		}
		require.Empty(t, run("/enrollmentGroups", group("create")))
		failed = run("/enrollmentGroups", group("create"))
		require.Equal(t, "grp-1", failed[0].EnrollmentGroupID)
		failed = run("/enrollments/",
			`{"mode":"delete","enrollments":[{"registrationId":"reg-1"},{"registrationId":"grp-1"}]}`)
		require.Len(t, failed, 1)
		require.Equal(t, "grp-1", failed[0].RegistrationID, "a group is no individual enrollment")
		require.Empty(t, run("/enrollmentGroups", group("delete")))
		require.Len(t, d.Enrollments(), 2)

		failed = run("/enrollments/", `{"mode":"create","enrollments":[{"registrationId":"reg-4"}]}`)
		require.Contains(t, failed[0].ErrorStatus, "attestation is missing")
		many := strings.TrimSuffix(strings.Repeat(one("reg-1", "")+",", 11), ",")
		for body, want := range map[string]string{
			"{": "body", `{"mode":"create"}`: "enrollments", `{"mode":"create","enrollments":[` + many + `]}`: "11",
			`{"mode":"upsert","enrollments":[` + one("reg-4", "") + `]}`: "updateIfMatchETag",
		} {
			_, got := ask(p, 400, "POST", "/enrollments/", body)
			require.Contains(t, got["message"], want)
		}
	})
}

func TestStatesOfRegistrationsForABackEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newDPS(t, &testbroker.DPSOptions{Polls: -1}, "hub-a.example.test")
		e := enroll(t, d, dpsdata.Enrollment{ID: "reg-1"})
		p := dpsBackEnd(t, d)
		_, got := ask(p, 200, "GET", "/enrollments/reg-1", "")
		require.NotContains(t, got, "registrationState")
		ask(p, 404, "GET", "/registrations/reg-1", "")
		device := overDPS(t, d)
		device.Token = dpsToken(d, "reg-1", e.PrimaryKey)
		register(device, "reg-1", "")
		_, first := ask(p, 200, "GET", "/registrations/reg-1", "")
		_, got = ask(p, 200, "GET", "/enrollments/reg-1", "")
		require.Equal(t, first, got["registrationState"])
		register(device, "reg-1", "")
		_, second := ask(p, 200, "GET", "/registrations/reg-1", "")
		require.NotEqual(t, first["etag"], second["etag"], "another registration")
		ask(p, 412, "DELETE", "/registrations/reg-1", "", "If-Match", first["etag"].(string))
		ask(p, 204, "DELETE", "/registrations/reg-1", "", "If-Match", second["etag"].(string))
		ask(p, 404, "DELETE", "/registrations/reg-1", "")
		register(device, "reg-1", "")
		ask(p, 412, "DELETE", "/registrations/reg-1", "", "If-Match", first["etag"].(string))
	})
}

func TestRefusedBackEndsOfTheDPS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newDPS(t, nil, "hub-a.example.test")
		p := dpsBackEnd(t, d)
		for name, c := range map[string]struct{ body, want string }{
			"not JSON": {"{", "body"},
			"another id": {`{"registrationId":"reg-2","attestation":{"type":"symmetricKey"}}`,
				`registrationId is "reg-2"`},
			"no id":            {`{"attestation":{"type":"symmetricKey"}}`, "registrationId is missing"},
			"no attestation":   {`{"registrationId":"reg-1"}`, "attestation is missing"},
			"unknown proof":    {`{"registrationId":"reg-1","attestation":{"type":"none"}}`, `attestation.type "none"`},
			"x509 without any": {`{"registrationId":"reg-1","attestation":{"type":"x509"}}`, "attestation.x509 is missing"},
			"bad key": {`{"registrationId":"reg-1","attestation":{"type":"symmetricKey",
				"symmetricKey":{"primaryKey":"x","secondaryKey":"x"}}}`, "attestation.symmetricKey.primaryKey"},
			"one key": {`{"registrationId":"reg-1","attestation":{"type":"symmetricKey",
				"symmetricKey":{"primaryKey":"MDEyMzQ1Njc4OWFiY2RlZg=="}}}`, "attestation.symmetricKey.secondaryKey"},
			"bad status": {`{"registrationId":"reg-1","attestation":{"type":"symmetricKey"},"provisioningStatus":"on"}`,
				`provisioningStatus "on"`},
			"bad allocation": {`{"registrationId":"reg-1","attestation":{"type":"symmetricKey"},"allocationPolicy":"x"}`,
				`allocationPolicy "x"`},
			"webhook": {`{"registrationId":"reg-1","attestation":{"type":"symmetricKey"},"allocationPolicy":"custom"}`,
				"allocationPolicy"},
			"bad device": {`{"registrationId":"reg-1","attestation":{"type":"symmetricKey"},"deviceId":"a b"}`, "deviceId"},
			"bad twin": {`{"registrationId":"reg-1","attestation":{"type":"symmetricKey"},"initialTwin":{"tags":[]}}`,
				"initialTwin.tags"},
			"bad certificate": {`{"registrationId":"reg-1","attestation":{"type":"x509",
				"x509":{"clientCertificates":{"primary":{"certificate":"x"}}}}}`,
				"attestation.x509.clientCertificates.primary.certificate"},
			"no certificate": {`{"registrationId":"reg-1","attestation":{"type":"x509","x509":{}}}`, "attestation.x509"},
		} {
			_, got := ask(p, 400, "PUT", "/enrollments/reg-1", c.body)
			require.Contains(t, got["message"], c.want, name)
		}
		require.Empty(t, d.Enrollments())
		ask(p, 400, "POST", "/enrollments/query", "", "x-ms-continuation", "x")
		r := p.Do("GET", "/enrollments/reg-1?api-version=1", "")
		require.Equal(t, 400, r.StatusCode)
		require.Contains(t, r.Text, "2021-10-01", "the error has versions that work")
		good := p.Token
		p.Token = ""
		ask(p, 401, "GET", "/enrollments/reg-1", "")
		e := enroll(t, d, dpsdata.Enrollment{ID: "reg-1"})
		p.Token = dpsToken(d, "reg-1", e.PrimaryKey)
		ask(p, 401, "GET", "/enrollments/reg-1", "")
		p.Token = good
		ask(p, 200, "GET", "/enrollments/reg-1", "")
	})
}

func pemOf(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
}

func TestErrorsOfEnrollNameTheField(t *testing.T) {
	d, _ := newDPS(t, nil, "hub-a.example.test")
	key := dpsdata.DeriveKey("", "x")
	root, leaf := testbroker.NewCertAuthority("root").Cert(), testbroker.NewClientCert("x", time.Time{}, time.Time{}).Leaf
	certs := []*x509.Certificate{root}
	allocate := func(dpsdata.AllocationRequest) (dpsdata.AllocationResult, error) {
		return dpsdata.AllocationResult{}, nil
	}
	for field, e := range map[string]dpsdata.Enrollment{
		"ID: ":              {ID: "a b"},
		"ID: registration":  {},
		"PrimaryKey: ":      {ID: "a", PrimaryKey: "c2hvcnQ=", SecondaryKey: key},
		"PrimaryKey: it is": {ID: "a", SecondaryKey: key},
		"SecondaryKey: it":  {ID: "a", PrimaryKey: key},
		"SecondaryKey: a":   {ID: "a", PrimaryKey: key, SecondaryKey: "c2hvcnQ="},
		"PrimaryKey: there": {ID: "a", PrimaryKey: key, Certificates: certs},
		"Certificates[0]: ": {ID: "a", Group: true, Certificates: []*x509.Certificate{leaf}},
		"Certificates[1]: ": {ID: "a", Certificates: append(certs, nil)},
		"DeviceID: a group": {ID: "a", Group: true, DeviceID: "b"},
		"DeviceID: device":  {ID: "a", DeviceID: "a b"},
		"Hubs[1]: ":         {ID: "a", Hubs: []string{"hub-a.example.test", ""}},
		"Allocation: ":      {ID: "a", Allocation: 9},
		"Reprovision: ":     {ID: "a", Reprovision: 9},
		"Allocate: it is":   {ID: "a", Allocation: dpsdata.AllocationCustom},
		"Allocate: nothing": {ID: "a", Allocate: allocate},
		"Tags: ":            {ID: "a", Tags: "[]"},
		"Desired: ":         {ID: "a", Desired: "{"},
	} {
		_, err := d.Enroll(e)
		require.ErrorContains(t, err, ": "+field)
		require.Contains(t, err.Error(), "; ", "the error says what to do")
		require.NotContains(t, err.Error(), key)
	}
	require.Empty(t, d.Enrollments())
	enroll(t, d, dpsdata.Enrollment{ID: "a"})
	require.ErrorContains(t, d.Change("a",
		func(e *dpsdata.Enrollment) { e.PrimaryKey = "" }), "change enrollment a: PrimaryKey: ")
	for n := range 100 {
		enroll(t, d, dpsdata.Enrollment{ID: fmt.Sprint("grp-", n), Group: true})
	}
	_, err := d.Enroll(dpsdata.Enrollment{ID: "one-more", Group: true})
	require.ErrorContains(t, err, "enrollment group one-more: there are 100 groups already")
}

func TestErrorsOfLinkNameTheHub(t *testing.T) {
	d, hubs := newDPS(t, nil, "hub-a.example.test")
	other, err := testbroker.New(&testbroker.Options{HostName: "hub-b.example.test"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close()) })
	require.ErrorContains(t, d.Link(other, nil), "hub 2 of 2 is nil")
	require.ErrorContains(t, d.Link(other, hubs["hub-a.example.test"]), "hub-a.example.test is linked already")
	require.ErrorContains(t, d.Link(other, other), "hub-b.example.test is linked already")
	require.ErrorContains(t, d.Unlink("hub-b.example.test"), "there are: hub-a.example.test",
		"a failed Link links nothing")
	require.NoError(t, d.Unlink("HUB-A.example.test"))
	require.ErrorContains(t, d.Unlink("hub-a.example.test"), "there are: none")
	_, err = testbroker.NewDPS(&testbroker.DPSOptions{IDScope: "a b"})
	require.ErrorContains(t, err, "DPSOptions.IDScope")
	_, err = testbroker.NewDPS(&testbroker.DPSOptions{HostName: "a b"})
	require.ErrorContains(t, err, "DPSOptions.HostName")
}

func TestARegistrationWithoutAHubNamesThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newDPS(t, &testbroker.DPSOptions{Polls: -1}, "hub-a.example.test")
		e := enroll(t, d, dpsdata.Enrollment{ID: "reg-1", Hubs: []string{"hub-b.example.test"}})
		p := overDPSAs(t, d, e)
		a := register(p, "reg-1", "")
		require.Equal(t, 400208, a.State.ErrorCode)
		require.Contains(t, a.State.ErrorMessage,
			"enrollment reg-1 is for hub-b.example.test; linked are: hub-a.example.test")
		require.NoError(t, d.Unlink("hub-a.example.test"))
		require.NoError(t, d.Move("reg-1"))
		require.Contains(t, register(p, "reg-1", "").State.ErrorMessage, "none is linked")
	})
}

// A device type exists only in the preview. Older back ends do not see it, and so do not remove it.
func TestTheDeviceTypeOfAnEnrollment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newDPS(t, &testbroker.DPSOptions{Polls: -1}, "hub-a.example.test")
		p := dpsBackEnd(t, d)
		put := func(version, refs string) hubtest.Reply {
			return p.Do("PUT", "/enrollments/reg-1?api-version="+version, `{"registrationId":"reg-1",`+
				`"attestation":{"type":"symmetricKey"}`+refs+`}`, "If-Match", "*")
		}
		const refs = `,"deviceTypeRefs":["urn:example:thermometer:1"]`
		for _, row := range []struct{ version, sent, shown, kept string }{
			{"2026-11-02-preview", refs, refs[1:], "[urn:example:thermometer:1]"},
			{"2026-11-01", `,"deviceTypeRefs":["urn:other"]`, "", "[urn:example:thermometer:1]"},
			{"2026-11-02-preview", "", "", "[]"},
		} {
			r := put(row.version, row.sent)
			require.Equal(t, 200, r.StatusCode, r.Text)
			require.Contains(t, r.Text, row.shown)
			require.Equal(t, row.shown != "", strings.Contains(r.Text, "deviceTypeRefs"))
			e, err := d.Enrollment("reg-1")
			require.NoError(t, err)
			require.Equal(t, row.kept, fmt.Sprint(e.DeviceTypeRefs))
		}
		r := put("2026-11-02-preview", `,"deviceTypeRefs":["a","b"]`)
		require.Equal(t, 400, r.StatusCode)
		require.Contains(t, r.Text, "deviceTypeRefs: there are 2; give one, or none")
	})
}

// The names of a certificate policy exist from the stable version on.
func TestTheCertificatePolicyOfAnEnrollment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newDPS(t, &testbroker.DPSOptions{Polls: -1}, "hub-a.example.test")
		p := dpsBackEnd(t, d)
		const names = `"namespaceName":"plant-1","certificateAuthorityName":"CA-1","certificatePolicyName":"days-30"`
		want := dpsdata.CertificatePolicy{Namespace: "plant-1", Authority: "CA-1", Name: "days-30"}
		put := func(version, etag, names string) hubtest.Reply {
			return p.Do("PUT", "/enrollmentGroups/grp-1?api-version="+version, `{"enrollmentGroupId":"grp-1",`+
				`"attestation":{"type":"symmetricKey"},`+names+`}`, "If-Match", etag)
		}
		policy := func() dpsdata.CertificatePolicy {
			e, err := d.Enrollment("grp-1")
			require.NoError(t, err)
			return e.CertificatePolicy
		}
		r := put("2026-11-01", "*", names)
		require.Equal(t, 200, r.StatusCode, r.Text)
		require.Contains(t, r.Text, names)
		require.Equal(t, want, policy())
		r = put("2021-10-01", "*", `"provisioningStatus":"disabled"`)
		require.Equal(t, 200, r.StatusCode, r.Text)
		require.NotContains(t, r.Text, "certificatePolicyName")
		require.Equal(t, want, policy(), "an older back end does not see it, and so does not remove it")
		r = p.Do("GET", "/enrollmentGroups/grp-1?api-version=2026-11-02-preview", "")
		require.Contains(t, r.Text, names)
		for _, bad := range []string{`"namespaceName":"Plant"`, `"namespaceName":"a-"`, `"namespaceName":"ab"`,
			`"certificateAuthorityName":"-ca"`, `"certificatePolicyName":"a b"`} {
			r = put("2026-11-01", "*", bad)
			require.Equal(t, 400, r.StatusCode, r.Text)
			name, _, _ := strings.Cut(strings.Trim(bad, `"`), `"`)
			require.Contains(t, r.Text, name)
		}
		r = put("2026-11-01", "*", `"provisioningStatus":"enabled"`)
		require.Equal(t, 200, r.StatusCode, r.Text)
		require.Zero(t, policy(), "a newer one replaces it")
	})
}
