package dps

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/testbroker/dpsdata"
)

// MaxBody is the size limit of a request's body, maxPayload that of a custom payload, and maxCSR
// that of a certificate signing request, in bytes.
const (
	MaxBody    = 96 << 10
	maxPayload = 64 << 10
	maxCSR     = 8 << 10
)

// readBody parses the body of a register request into r, and the TPM's keys into c. Clients send
// nothing, an empty object, or any of the members; null means absent.
func readBody(c *Client, r *dpsdata.Request) (csr *x509.CertificateRequest, bad *Error) {
	if len(r.Body) > MaxBody {
		return nil, Errorf(CodeBadRequest, "body of %d bytes, at most %d are allowed", len(r.Body), MaxBody)
	}
	if len(bytes.TrimSpace(r.Body)) == 0 {
		return nil, nil
	}
	var in struct {
		RegistrationID *string         `json:"registrationId"`
		Payload        json.RawMessage `json:"payload"`
		CSR            *string         `json:"csr"`
		TPM            *TPM            `json:"tpm"`
	}
	if !utf8.Valid(r.Body) || json.Unmarshal(r.Body, &in) != nil {
		return nil, Errorf(CodeBadRequest, "body is not a registration in JSON")
	}
	if id := in.RegistrationID; id != nil && !strings.EqualFold(*id, c.ID) {
		return nil, Errorf(CodeBadRequest, "body is of the registration %q", *id)
	}
	if in.TPM != nil {
		c.TPM = in.TPM
	}
	if len(in.Payload) > maxPayload {
		return nil, Errorf(CodeBadRequest, "payload of %d bytes, at most %d are allowed", len(in.Payload), maxPayload)
	}
	if len(in.Payload) > 0 && string(in.Payload) != "null" {
		r.Payload = in.Payload
	}
	if in.CSR == nil {
		return nil, nil
	}
	if !versions[c.APIVersion].CSR {
		return nil, Errorf(CodeBadRequest, "api-version %s knows no csr", c.APIVersion)
	}
	if len(*in.CSR) > maxCSR {
		return nil, Errorf(CodeBadRequest, "csr of %d characters, at most %d are allowed", len(*in.CSR), maxCSR)
	}
	der, err := base64.StdEncoding.DecodeString(*in.CSR)
	if err != nil {
		return nil, Errorf(CodeBadRequest, "csr: %v", err)
	}
	r.CSR = der
	if csr, err = x509.ParseCertificateRequest(der); err == nil {
		err = csr.CheckSignature()
	}
	switch {
	case err != nil:
		return nil, Errorf(CodeBadRequest, "csr: %v", err)
	case !strings.EqualFold(csr.Subject.CommonName, c.ID):
		return nil, Errorf(CodeBadRequest, "csr is for %q", csr.Subject.CommonName)
	}
	return csr, nil
}
