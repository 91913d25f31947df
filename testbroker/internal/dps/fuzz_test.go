package dps

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/hubline-iot/hubline/testbroker/dpsdata"
)

func FuzzReadBody(f *testing.F) {
	for _, s := range []string{
		"", " ", "{}", "null", `{"registrationId":"REG-1"}`, `{"payload":null,"registrationId":"reg-1"}`,
		`{"payload":{"a":[1]},"csr":"AA=="}`, `{"csr":"-----BEGIN CERTIFICATE REQUEST-----"}`, `{"registrationId":"other"}`,
		`{"Payload":1,"payload":2}`, `[]`, `{"tpm":{"endorsementKey":"AA==","storageRootKey":"AA=="}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		c := &Client{ID: "reg-1", APIVersion: "2025-07-01-preview"}
		r := &dpsdata.Request{Body: body}
		csr, bad := readBody(c, r)
		switch {
		case bad != nil && (csr != nil || bad.Status() < 400 || bad.Status() > 499):
			t.Fatalf("%s: %v", body, bad)
		case csr != nil && !strings.EqualFold(csr.Subject.CommonName, c.ID):
			t.Fatalf("%s: a request for %q", body, csr.Subject.CommonName)
		case bad == nil && r.Payload != nil && !json.Valid(r.Payload):
			t.Fatalf("%s: payload %s", body, r.Payload)
		}
	})
}

func FuzzCheckID(f *testing.F) {
	for _, s := range []string{"reg-1", "a", "", "a.", "a-", "a/b", "\x00", "é", strings.Repeat("a", 129)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, id string) {
		ok := CheckID(id) == nil
		if want := id != "" && len(id) <= 128 && strings.Trim(id,
			"-._:0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" &&
			!strings.ContainsAny(id[len(id)-1:], "._:"); ok != want {
			t.Fatalf("%q: %v", id, ok)
		}
	})
}
