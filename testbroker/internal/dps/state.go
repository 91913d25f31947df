package dps

import (
	"encoding/base64"
	"encoding/json"

	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// A stateDocument is a registration in the form that devices receive.
type stateDocument struct {
	RegistrationID string          `json:"registrationId"`
	Created        string          `json:"createdDateTimeUtc,omitempty"`
	AssignedHub    string          `json:"assignedHub,omitempty"`
	DeviceID       string          `json:"deviceId,omitempty"`
	Status         string          `json:"status"`
	Substatus      string          `json:"substatus,omitempty"`
	Updated        string          `json:"lastUpdatedDateTimeUtc,omitempty"`
	ErrorCode      int             `json:"errorCode,omitempty"`
	ErrorMessage   string          `json:"errorMessage,omitempty"`
	ETag           string          `json:"etag,omitempty"`
	Payload        json.RawMessage `json:"payload,omitempty"`
	TPM            *tpmDocument    `json:"tpm,omitempty"`
	SymmetricKey   *groupDocument  `json:"symmetricKey,omitempty"`
	X509           *x509Document   `json:"x509,omitempty"`
	IssuedChain    []string        `json:"issuedCertificateChain,omitempty"`

	ConnectionProfile string `json:"connectionProfile,omitempty"`
}

type tpmDocument struct {
	AuthenticationKey []byte `json:"authenticationKey,omitempty"`
}

type groupDocument struct {
	EnrollmentGroupID *string `json:"enrollmentGroupId"`
}

type x509Document struct {
	Certificate       certificateDocument  `json:"certificateInfo"`
	EnrollmentGroupID *string              `json:"enrollmentGroupId"`
	Signing           *certificateDocument `json:"signingCertificateInfo"`
}

type certificateDocument struct {
	Subject   string `json:"subjectName"`
	SHA1      string `json:"sha1Thumbprint"`
	SHA256    string `json:"sha256Thumbprint"`
	Issuer    string `json:"issuerName"`
	NotBefore string `json:"notBeforeUtc"`
	NotAfter  string `json:"notAfterUtc"`
	Serial    string `json:"serialNumber"`
	Version   int    `json:"version"`
}

// as returns the document with the members that a version of the API has.
func (d stateDocument) as(version string) stateDocument {
	if !versions[version].profile {
		d.ConnectionProfile = ""
	}
	return d
}

// stateOf returns the document of a registration.
func (s *Service) stateOf(reg dpsdata.Registration, m *match, chain [][]byte) stateDocument {
	d := stateDocument{
		RegistrationID: reg.ID, Status: reg.Status,
		Created: document.TimeText(reg.Created), Updated: document.TimeText(reg.Updated),
		ErrorCode: reg.ErrorCode, ErrorMessage: reg.ErrorMessage,
	}
	if reg.Status != statusAssigned {
		return d
	}
	d.AssignedHub, d.DeviceID, d.Substatus, d.Payload = reg.Hub, reg.DeviceID, reg.Substatus, reg.Payload
	if h := s.linked(reg.Hub); h != nil {
		d.ConnectionProfile = h.Profile()
	}
	var group *string
	if m.data.Group {
		group = &m.data.ID
	}
	if m.data.EndorsementKey != nil {
		d.TPM = &tpmDocument{m.activation}
	} else if m.leaf == nil {
		d.SymmetricKey = &groupDocument{group}
	} else {
		d.X509 = &x509Document{
			Certificate: certificateDocument{
				Subject: m.leaf.Subject.String(), SHA1: hub.ThumbprintSHA1(m.leaf), SHA256: hub.Thumbprint(m.leaf),
				Issuer:    m.leaf.Issuer.String(),
				NotBefore: document.TimeText(m.leaf.NotBefore), NotAfter: document.TimeText(m.leaf.NotAfter),
				Serial: m.leaf.SerialNumber.Text(16), Version: m.leaf.Version,
			},
			EnrollmentGroupID: group,
		}
	}
	for _, der := range chain {
		d.IssuedChain = append(d.IssuedChain, base64.StdEncoding.EncodeToString(der))
	}
	return d
}
