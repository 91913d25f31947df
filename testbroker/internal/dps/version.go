package dps

import (
	"maps"
	"slices"
	"strings"
)

// A Version is what a version of the service's API has beyond the first.
type Version struct {
	CSR     bool // signing requests of devices
	Policy  bool // the certificate policy of an enrollment, in its namespace and authority
	Types   bool // the device types of an enrollment
	profile bool // connection profiles in answers
}

// versions are the versions that devices and back ends ask for. Source: the API specifications of
// the service. 2026-08-31 is a version of its management that clients ask for nonetheless.
var versions = map[string]Version{
	"2019-03-31":         {},
	"2021-06-01":         {},
	"2021-10-01":         {},
	"2025-07-01-preview": {CSR: true},
	"2026-07-01-preview": {CSR: true},
	"2026-08-31":         {},
	"2026-11-01":         {CSR: true, Policy: true},
	"2026-11-02-preview": {CSR: true, Policy: true, Types: true, profile: true},
}

// FindVersion returns what a version has. An unknown version is refused.
func FindVersion(name string) (Version, *Error) {
	v, ok := versions[name]
	if !ok {
		return v, Errorf(CodeBadRequest, "api-version %q is unknown; give one of: %s", name,
			strings.Join(slices.Sorted(maps.Keys(versions)), ", "))
	}
	return v, nil
}
