// Package dpsdata has the enrollments that a test gives a provisioning service of package
// testbroker, and the requests and registrations that the service records.
package dpsdata
