package dpsdata

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
)

// Enrollment lets one device, or a group of devices, register. It holds secrets: String and the %v
// verbs of package fmt omit the keys.
type Enrollment struct {
	// ID is the registration id of the device, or the name of the group. An id is used once, in any
	// letter case.
	ID string
	// Group marks the enrollment of a group.
	Group bool

	// PrimaryKey and SecondaryKey, base64 of 16 to 64 bytes, attest devices by tokens. A device of a
	// group uses keys derived from them: see [DeriveKey]. If the enrollment has neither keys nor
	// certificates, the service makes both keys.
	PrimaryKey, SecondaryKey string
	// Certificates attest devices by certificates: the device's own certificate, or that of an
	// authority, to which the chain of the device leads. A group takes only authorities. The common
	// name of the device's certificate must be the registration id.
	Certificates []*x509.Certificate
	// EndorsementKey attests a device by its TPM: a TPM2B_PUBLIC of RSA with 2048 bits, of the
	// standard template. The keys above are then what the service encrypts for the TPM. A group has
	// none.
	EndorsementKey []byte

	// DeviceID is the id of the device at its hub. Default: the registration id. A group has none.
	DeviceID string
	// Hubs are the names of the hubs to choose from. Default: all linked hubs.
	Hubs []string
	// Allocation is the rule that chooses the hub.
	Allocation Allocation
	// Allocate chooses the hub if Allocation is AllocationCustom. It runs in the goroutine of the
	// request, and concurrently for different devices. An error fails the registration with the
	// code 400207.
	Allocate func(AllocationRequest) (AllocationResult, error)
	// Reprovision says what happens when a registered device registers again.
	Reprovision Reprovision
	// Disabled refuses registrations with the status "disabled".
	Disabled bool
	// Tags and Desired, JSON objects, are the first twin of a device. Default: empty.
	Tags, Desired string

	// Issue answers a certificate signing request with a chain of DER certificates, the device's own
	// first. Nil refuses such requests.
	Issue func(*x509.CertificateRequest) (chain [][]byte, err error)
	// CertificatePolicy names the policy by which the service issues certificates. Back ends see it
	// from the API version 2026-11-01 on; the emulator issues with Issue.
	CertificatePolicy CertificatePolicy
	// DeviceTypeRefs name the type of the devices, at most one. Back ends see them in the API version
	// 2026-11-02-preview. Devices do not.
	DeviceTypeRefs []string
}

// String returns the kind and the id without the keys.
func (e Enrollment) String() string {
	if e.Group {
		return "enrollment group " + e.ID
	}
	return "enrollment " + e.ID
}

// GoString is String.
func (e Enrollment) GoString() string { return e.String() }

// CertificatePolicy is the name of a certificate policy, with the device registry's namespace and
// the authority that it belongs to.
type CertificatePolicy struct {
	Namespace string // 3 to 64 letters in lower case, digits and dashes within
	Authority string // 3 to 63 letters and digits, and dashes after the first
	Name      string // as Authority
}

// DeriveKey returns the key of a device in a group: the HMAC-SHA256 of the registration id, exactly
// as given, under a key of the group. It panics if the key is not base64.
func DeriveKey(groupKey, registrationID string) string {
	raw, err := base64.StdEncoding.DecodeString(groupKey)
	if err != nil {
		panic("dpsdata: key of a group: " + err.Error())
	}
	mac := hmac.New(sha256.New, raw)
	mac.Write([]byte(registrationID))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// Allocation is a rule that chooses a hub.
type Allocation uint8

const (
	// AllocationHashed spreads devices evenly: the choice depends only on the registration id and
	// the names of the hubs.
	AllocationHashed Allocation = iota
	// AllocationFixed chooses the first hub.
	AllocationFixed
	// AllocationRoundRobin chooses the hubs in turn. A registered device keeps its hub as long as
	// it is in the list.
	AllocationRoundRobin
	// AllocationCustom calls Enrollment.Allocate for each registration.
	AllocationCustom
)

var allocationNames = [...]string{"hashed", "fixed", "round robin", "custom"}

// String returns the name of the rule.
func (a Allocation) String() string {
	if int(a) < len(allocationNames) {
		return allocationNames[a]
	}
	return fmt.Sprintf("Allocation(%d)", uint8(a))
}

// Reprovision says what happens when a registered device registers again.
type Reprovision uint8

const (
	// ReprovisionMigrate applies the rule of allocation again. If the hub changes, the device is
	// removed from the old one and its twin moves along.
	ReprovisionMigrate Reprovision = iota
	// ReprovisionReset is ReprovisionMigrate with the first twin of the enrollment instead of the
	// old one.
	ReprovisionReset
	// ReprovisionNever keeps the first hub.
	ReprovisionNever
)

var reprovisionNames = [...]string{"migrate", "reset", "never"}

// String returns the name of the policy.
func (r Reprovision) String() string {
	if int(r) < len(reprovisionNames) {
		return reprovisionNames[r]
	}
	return fmt.Sprintf("Reprovision(%d)", uint8(r))
}

// AllocationRequest is what Enrollment.Allocate decides on.
type AllocationRequest struct {
	// EnrollmentID is the id of the enrollment or of the group.
	EnrollmentID string
	// RegistrationID is the id as the device sent it.
	RegistrationID string
	// Hubs are the names of the linked hubs to choose from.
	Hubs []string
	// Hub is the present hub of the device; empty for a first registration.
	Hub string
	// Payload is the custom payload of the device; nil if it sent none.
	Payload json.RawMessage
}

// AllocationResult is what Enrollment.Allocate returns.
type AllocationResult struct {
	// Hub is the name of a linked hub.
	Hub string
	// Payload is passed to the device; nil means none.
	Payload json.RawMessage
	// Tags and Desired, unless empty, replace those of the enrollment.
	Tags, Desired string
}
