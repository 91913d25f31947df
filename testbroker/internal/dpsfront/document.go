package dpsfront

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/dps"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// An enrollment, of one device or of a group, in the form that back ends send and receive.
type enrollment struct {
	RegistrationID     string       `json:"registrationId,omitempty"`
	EnrollmentGroupID  string       `json:"enrollmentGroupId,omitempty"`
	DeviceID           string       `json:"deviceId,omitempty"`
	Attestation        *attestation `json:"attestation"`
	IotHubHostName     string       `json:"iotHubHostName,omitempty"`
	IotHubs            []string     `json:"iotHubs,omitempty"`
	InitialTwin        *initialTwin `json:"initialTwin,omitempty"`
	ProvisioningStatus string       `json:"provisioningStatus"`
	ReprovisionPolicy  *reprovision `json:"reprovisionPolicy"`
	AllocationPolicy   string       `json:"allocationPolicy"`
	ETag               string       `json:"etag,omitempty"`

	// The names of a certificate policy, in versions of the API that have it.
	NamespaceName            string `json:"namespaceName,omitempty"`
	CertificateAuthorityName string `json:"certificateAuthorityName,omitempty"`
	CertificatePolicyName    string `json:"certificatePolicyName,omitempty"`

	// DeviceTypeRefs are there in versions of the API that have them.
	DeviceTypeRefs []string `json:"deviceTypeRefs,omitempty"`

	// RegistrationState is there for the enrollment of a device that has registered.
	RegistrationState json.RawMessage `json:"registrationState,omitempty"`

	Created string `json:"createdDateTimeUtc,omitempty"`
	Updated string `json:"lastUpdatedDateTimeUtc,omitempty"`
}

type attestation struct {
	Type         string        `json:"type"`
	SymmetricKey *symmetricKey `json:"symmetricKey,omitempty"`
	X509         *certificates `json:"x509,omitempty"`
	TPM          *dps.TPM      `json:"tpm,omitempty"`
}

type symmetricKey struct {
	PrimaryKey   string `json:"primaryKey"`
	SecondaryKey string `json:"secondaryKey"`
}

type certificates struct {
	Client  *certificatePair `json:"clientCertificates,omitempty"`
	Signing *certificatePair `json:"signingCertificates,omitempty"`
}

type certificatePair struct {
	Primary   *certificate `json:"primary,omitempty"`
	Secondary *certificate `json:"secondary,omitempty"`
}

type certificate struct {
	Certificate string `json:"certificate"`
}

type initialTwin struct {
	Tags       json.RawMessage `json:"tags,omitempty"`
	Properties struct {
		Desired json.RawMessage `json:"desired,omitempty"`
	} `json:"properties"`
}

type reprovision struct {
	UpdateHubAssignment bool `json:"updateHubAssignment"`
	MigrateDeviceData   bool `json:"migrateDeviceData"`
}

// enrollment returns what a back end has sent.
func (d *enrollment) enrollment(group bool, v dps.Version) (dpsdata.Enrollment, error) {
	e := dpsdata.Enrollment{ID: d.RegistrationID, Group: group, DeviceID: d.DeviceID, Hubs: d.IotHubs}
	if group {
		e.ID = d.EnrollmentGroupID
	}
	if e.ID == "" {
		return e, fmt.Errorf("%s is missing", idOf(group))
	}
	if len(e.Hubs) == 0 && d.IotHubHostName != "" {
		e.Hubs = []string{d.IotHubHostName}
	}
	if v.Policy {
		e.CertificatePolicy = dpsdata.CertificatePolicy{Namespace: d.NamespaceName, Authority: d.CertificateAuthorityName,
			Name: d.CertificatePolicyName}
	}
	if v.Types {
		e.DeviceTypeRefs = d.DeviceTypeRefs
	}
	switch d.ProvisioningStatus {
	case "", "enabled":
	case "disabled":
		e.Disabled = true
	default:
		return e, fmt.Errorf("provisioningStatus %q is unknown; give enabled or disabled", d.ProvisioningStatus)
	}
	switch d.AllocationPolicy {
	case "", "hashed":
	case "static", "geoLatency": // all hubs are equally near
		e.Allocation = dpsdata.AllocationFixed
	case "custom": // for an enrollment that has a function
		e.Allocation = dpsdata.AllocationCustom
	default:
		return e, fmt.Errorf("allocationPolicy %q is unknown; give hashed, static or geoLatency", d.AllocationPolicy)
	}
	if p := d.ReprovisionPolicy; p != nil {
		switch {
		case !p.UpdateHubAssignment:
			e.Reprovision = dpsdata.ReprovisionNever
		case !p.MigrateDeviceData:
			e.Reprovision = dpsdata.ReprovisionReset
		}
	}
	if t := d.InitialTwin; t != nil {
		e.Tags, e.Desired = textOf(t.Tags), textOf(t.Properties.Desired)
	}
	err := d.Attestation.into(&e)
	return e, err
}

// textOf returns a JSON value as text; null is absent.
func textOf(raw json.RawMessage) string {
	if string(raw) == "null" {
		return ""
	}
	return string(raw)
}

func (a *attestation) into(e *dpsdata.Enrollment) error {
	switch {
	case a == nil:
		return errors.New("attestation is missing; give one of the type symmetricKey, x509 or tpm")
	case strings.EqualFold(a.Type, "symmetricKey"):
		if k := a.SymmetricKey; k != nil {
			e.PrimaryKey, e.SecondaryKey = k.PrimaryKey, k.SecondaryKey
		}
		return nil
	case strings.EqualFold(a.Type, "tpm"):
		if a.TPM == nil || a.TPM.Endorsement == nil {
			return errors.New("attestation.tpm.endorsementKey is missing")
		}
		e.EndorsementKey = a.TPM.Endorsement
		return nil
	case !strings.EqualFold(a.Type, "x509"):
		return fmt.Errorf("attestation.type %q is not supported; give symmetricKey, x509 or tpm", a.Type)
	case a.X509 == nil:
		return errors.New("attestation.x509 is missing")
	}
	for _, c := range a.X509.all() {
		if c.certificate == nil || c.Certificate == "" {
			continue
		}
		cert, err := parseCertificate(c.Certificate)
		if err != nil {
			return fmt.Errorf("attestation.x509.%s.certificate: %w; give PEM, or DER in base64", c.member, err)
		}
		e.Certificates = append(e.Certificates, cert)
	}
	if len(e.Certificates) == 0 {
		return errors.New("attestation.x509 has no certificate; give clientCertificates or signingCertificates")
	}
	return nil
}

// A memberCertificate is a certificate of an enrollment, nil if it is absent, with its member.
type memberCertificate struct {
	member string
	*certificate
}

func (c *certificates) all() (all []memberCertificate) {
	for _, p := range []struct {
		member string
		pair   *certificatePair
	}{{"clientCertificates", c.Client}, {"signingCertificates", c.Signing}} {
		if p.pair != nil {
			all = append(all, memberCertificate{p.member + ".primary", p.pair.Primary},
				memberCertificate{p.member + ".secondary", p.pair.Secondary})
		}
	}
	return all
}

// parseCertificate takes PEM, or base64 of DER as some clients send.
func parseCertificate(text string) (*x509.Certificate, error) {
	if block, _ := pem.Decode([]byte(text)); block != nil {
		return x509.ParseCertificate(block.Bytes)
	}
	der, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// document returns an enrollment as back ends receive it.
func (b backEnd) document(q *web.Request, e dps.Stored, keys bool) enrollment {
	d := enrollment{
		DeviceID: e.DeviceID, Attestation: &attestation{Type: "symmetricKey"}, IotHubs: e.Hubs,
		ProvisioningStatus: "enabled", AllocationPolicy: "hashed", ETag: e.ETag,
		ReprovisionPolicy: &reprovision{e.Reprovision != dpsdata.ReprovisionNever,
			e.Reprovision == dpsdata.ReprovisionMigrate},
		Created: document.TimeText(e.Created), Updated: document.TimeText(e.Updated),
	}
	if e.Group {
		d.EnrollmentGroupID = e.ID
	} else {
		d.RegistrationID = e.ID
		d.RegistrationState, _ = b.dps.State(e.ID, versionName(q)) // nil before the first registration
	}
	if version(q).Policy {
		p := e.CertificatePolicy
		d.NamespaceName, d.CertificateAuthorityName, d.CertificatePolicyName = p.Namespace, p.Authority, p.Name
	}
	if version(q).Types {
		d.DeviceTypeRefs = e.DeviceTypeRefs
	}
	if len(e.Hubs) > 0 {
		d.IotHubHostName = e.Hubs[0]
	}
	if e.Disabled {
		d.ProvisioningStatus = "disabled"
	}
	switch e.Allocation {
	case dpsdata.AllocationFixed:
		d.AllocationPolicy = "static"
	case dpsdata.AllocationCustom:
		d.AllocationPolicy = "custom"
	case dpsdata.AllocationHashed, dpsdata.AllocationRoundRobin: // the service has no such policy
	}
	if e.Tags != "" || e.Desired != "" {
		d.InitialTwin = &initialTwin{Tags: json.RawMessage(e.Tags)}
		d.InitialTwin.Properties.Desired = json.RawMessage(e.Desired)
	}
	switch {
	case len(e.Certificates) > 0:
		d.Attestation = attestationOf(e.Enrollment)
	case e.EndorsementKey != nil:
		d.Attestation = &attestation{Type: "tpm", TPM: &dps.TPM{Endorsement: e.EndorsementKey}}
	case keys:
		d.Attestation.SymmetricKey = &symmetricKey{e.PrimaryKey, e.SecondaryKey}
	}
	return d
}

func attestationOf(e dpsdata.Enrollment) *attestation {
	pair := &certificatePair{}
	for i, place := range []**certificate{&pair.Primary, &pair.Secondary} {
		if i < len(e.Certificates) {
			var text bytes.Buffer
			pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: e.Certificates[i].Raw}) // never fails
			*place = &certificate{text.String()}
		}
	}
	a := &attestation{Type: "x509", X509: &certificates{Client: pair}}
	if e.Certificates[0].IsCA {
		a.X509 = &certificates{Signing: pair}
	}
	return a
}
