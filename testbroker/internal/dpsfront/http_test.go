package dpsfront

import (
	"encoding/json"
	"net/url"
	"testing"

	"github.com/hubline-iot/hubline/testbroker/internal/dps"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// FuzzEnrollment reads the enrollment of a back end. What the service has taken, it can show.
func FuzzEnrollment(f *testing.F) {
	for _, s := range []string{
		`{"registrationId":"reg-1","attestation":{"type":"symmetricKey"},"initialTwin":{"tags":{"a":1},"properties":null}}`,
		`{"registrationId":"reg-1","attestation":{"type":"x509","x509":{"clientCertificates":{"primary":` +
			`{"certificate":"AA=="}}}}}`,
		`{"registrationId":"reg-1","deviceId":"d","iotHubs":["a","b"],"allocationPolicy":"geoLatency","provisioningStatus":` +
			`"disabled","reprovisionPolicy":{},"attestation":{"type":"symmetricKey","symmetricKey":{"primaryKey":"x"}}}`,
		`{"enrollmentGroupId":"reg-1","attestation":null}`, `null`, `[]`,
	} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	network, err := hub.New(&hub.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = network.Close() })
	q := &web.Request{Query: url.Values{"api-version": {"2026-11-01"}}}
	f.Fuzz(func(t *testing.T, body []byte, group bool) {
		var d enrollment
		if json.Unmarshal(body, &d) != nil {
			return
		}
		e, err := d.enrollment(group, dps.Version{Policy: true})
		if err != nil {
			return
		}
		s, err := dps.New(network, dps.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Enroll(e); err != nil {
			return
		}
		stored, err := s.Stored(e.ID)
		if err != nil {
			t.Fatal(err)
		}
		shown, err := json.Marshal(backEnd{s}.document(q, stored, true))
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		var again enrollment
		if err := json.Unmarshal(shown, &again); err != nil {
			t.Fatalf("%s shown as %s: %v", body, shown, err)
		}
		if _, err := again.enrollment(group, dps.Version{Policy: true}); err != nil {
			t.Fatalf("%s shown as %s: %v", body, shown, err)
		}
	})
}
