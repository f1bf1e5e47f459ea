// Package otlp writes a recording as OpenTelemetry profiles: one message ProfilesData of opentelemetry-proto 1.11
// (profiles/v1development), with a profile for each thing that weighs and one dictionary for all. What is in it is what is in
// the pprof profile: mappings with build ids, functions with lines and inlined calls, and labels as attributes, by the names
// of OpenTelemetry's semantic conventions where these have one.
package otlp

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/pprof"
)

// Field numbers of opentelemetry/proto/profiles/v1development/profiles.proto and common.proto, under their names there.
const (
	dataResourceProfiles = 1
	dataDictionary       = 2

	resourceProfilesResource = 1
	resourceProfilesScope    = 2
	resourceAttributes       = 1
	scopeProfilesScope       = 1
	scopeProfilesProfiles    = 2
	scopeName                = 1
	scopeVersion             = 2

	profileSampleType = 1
	profileSamples    = 2
	profileTime       = 3 // fixed64
	profileDuration   = 4
	profilePeriodType = 5
	profilePeriod     = 6
	profileAttributes = 11

	valueType = 1
	valueUnit = 2

	sampleStack      = 1
	sampleAttributes = 2
	sampleValues     = 4

	dictMappings   = 1
	dictLocations  = 2
	dictFunctions  = 3
	dictLinks      = 4
	dictStrings    = 5
	dictAttributes = 6
	dictStacks     = 7

	mappingStart      = 1
	mappingLimit      = 2
	mappingOffset     = 3
	mappingFile       = 4
	mappingAttributes = 5

	locationMapping = 1
	locationAddress = 2
	locationLines   = 3
	lineFunction    = 1
	lineLine        = 2

	functionName       = 1
	functionSystemName = 2
	functionFile       = 3

	linkTrace = 1
	linkSpan  = 2

	stackLocations = 1

	attributeKey   = 1
	attributeValue = 2
	keyValueKey    = 1
	keyValueValue  = 2
	anyString      = 1
	anyInt         = 3
)

// attributeNames are what labels are called there.
var attributeNames = map[string]string{
	"thread": "thread.name", "tid": "thread.id", "process": "process.executable.name", "pid": "process.pid",
}

// Write writes src to w. Errors are those of src and w.
func Write(w io.Writer, src trace.Source) error {
	p, err := pprof.Profile(src, pprof.Options{})
	if err != nil {
		return fmt.Errorf("otlp: %w", err)
	}
	m := src.Meta()
	resource := map[string]string{
		"process.command_line": strings.Join(m.Command, " "), "host.name": m.Host, "host.arch": m.Arch, "os.type": "linux", "os.description": m.Kernel,
	}
	if _, err := w.Write(Encode(p, m, resource)); err != nil {
		return fmt.Errorf("otlp: writing: %w", err)
	}
	return nil
}

// encoder holds the dictionary. The first entry of each of its tables is the zero value: index 0 means none.
type encoder struct {
	strings            table[string]
	attributes, stacks table[string] // by their encoding
}

// table numbers what is different.
type table[T comparable] struct {
	rows []T
	at   map[T]uint64
}

func (t *table[T]) index(x T) uint64 {
	i, ok := t.at[x]
	if !ok {
		if t.at == nil {
			t.at = map[T]uint64{}
		}
		i = uint64(len(t.rows))
		t.rows = append(t.rows, x)
		t.at[x] = i
	}
	return i
}

// Encode encodes a profile of package pprof's as a ProfilesData, which has the encoding of an ExportProfilesServiceRequest.
// The profiles are those of a resource with the given attributes; empty ones are left out.
func Encode(p *profile.Profile, m *trace.Meta, attributes map[string]string) []byte {
	e := &encoder{}
	e.strings.index("")
	e.attributes.index("")
	e.stacks.index("")
	samples := make([][]byte, len(p.SampleType)) // encoded, by type
	for _, s := range p.Sample {
		var head []byte
		var ids []byte
		for _, l := range s.Location {
			ids = protowire.AppendVarint(ids, l.ID) // from 1, as the table's
		}
		head = varint(head, sampleStack, e.stacks.index(string(message(nil, stackLocations, ids))))
		head = message(head, sampleAttributes, e.labels(s))
		for i, v := range s.Value {
			if v != 0 {
				samples[i] = message(samples[i], profileSamples, message(head[:len(head):len(head)], sampleValues, protowire.AppendVarint(nil, uint64(v))))
			}
		}
	}
	var comments []byte
	if len(p.Comments) > 0 {
		comments = protowire.AppendVarint(nil, e.attribute("hbtrace.comments", text(strings.Join(p.Comments, "\n"))))
	}
	// The one that readers show first is the first.
	order := make([]int, len(p.SampleType))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		rank := func(i int) int {
			if p.SampleType[i].Type == p.DefaultSampleType {
				return 0
			}
			return 1
		}
		return rank(a) - rank(b)
	})
	scope := message(nil, scopeProfilesScope, str(str(nil, scopeName, "hbtrace"), scopeVersion, frames.Valid(m.Version)))
	for _, i := range order {
		t := p.SampleType[i]
		b := message(nil, profileSampleType, e.valueType(t.Type, t.Unit))
		b = append(b, samples[i]...)
		if p.TimeNanos > 0 {
			b = protowire.AppendFixed64(protowire.AppendTag(b, profileTime, protowire.Fixed64Type), uint64(p.TimeNanos))
		}
		b = varint(b, profileDuration, uint64(max(p.DurationNanos, 0)))
		if p.PeriodType != nil && (t.Type == "cpu" || t.Type == "samples") {
			b = message(b, profilePeriodType, e.valueType(p.PeriodType.Type, p.PeriodType.Unit))
			b = varint(b, profilePeriod, uint64(p.Period))
		}
		b = message(b, profileAttributes, comments)
		scope = message(scope, scopeProfilesProfiles, b)
	}
	var resource []byte
	for _, k := range slices.Sorted(maps.Keys(attributes)) {
		if v := attributes[k]; v != "" {
			resource = message(resource, resourceAttributes, message(str(nil, keyValueKey, k), keyValueValue, text(v)))
		}
	}
	dict := e.dictionary(p)
	all := message(message(nil, resourceProfilesResource, resource), resourceProfilesScope, scope)
	return message(message(nil, dataResourceProfiles, all), dataDictionary, dict)
}

func (e *encoder) valueType(name, unit string) []byte {
	return varint(varint(nil, valueType, e.strings.index(name)), valueUnit, e.strings.index(unit))
}

// text and number are values of attributes.
func text(s string) []byte  { return str(nil, anyString, frames.Valid(s)) }
func number(n int64) []byte { return varintAlways(nil, anyInt, uint64(n)) }

func (e *encoder) attribute(key string, value []byte) uint64 {
	return e.attributes.index(string(message(varint(nil, attributeKey, e.strings.index(key)), attributeValue, value)))
}

// labels are a sample's attributes, as a packed list, in the order of their names.
func (e *encoder) labels(s *profile.Sample) (packed []byte) {
	var keys []string
	for k := range s.Label {
		keys = append(keys, k)
	}
	for k := range s.NumLabel {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		name := attributeNames[k]
		if name == "" {
			name = "hbtrace." + k
		}
		if v := s.Label[k]; len(v) > 0 {
			packed = protowire.AppendVarint(packed, e.attribute(name, text(v[0])))
		} else if v := s.NumLabel[k]; len(v) > 0 {
			packed = protowire.AppendVarint(packed, e.attribute(name, number(v[0])))
		}
	}
	return packed
}

func (e *encoder) dictionary(p *profile.Profile) []byte {
	mappings, locations, functions := messageAlways(nil, dictMappings, nil), messageAlways(nil, dictLocations, nil), messageAlways(nil, dictFunctions, nil)
	for _, m := range p.Mapping {
		b := varint(varint(varint(nil, mappingStart, m.Start), mappingLimit, m.Limit), mappingOffset, m.Offset)
		b = varint(b, mappingFile, e.strings.index(frames.Valid(m.File)))
		if m.BuildID != "" {
			b = message(b, mappingAttributes, protowire.AppendVarint(nil, e.attribute("process.executable.build_id.gnu", text(m.BuildID))))
		}
		mappings = messageAlways(mappings, dictMappings, b)
	}
	for _, f := range p.Function {
		b := varint(nil, functionName, e.strings.index(frames.Valid(f.Name)))
		b = varint(b, functionSystemName, e.strings.index(frames.Valid(f.SystemName)))
		b = varint(b, functionFile, e.strings.index(frames.Valid(f.Filename)))
		functions = messageAlways(functions, dictFunctions, b)
	}
	for _, l := range p.Location {
		var b []byte
		if l.Mapping != nil {
			b = varint(b, locationMapping, l.Mapping.ID)
		}
		b = varint(b, locationAddress, l.Address)
		for _, line := range l.Line {
			b = message(b, locationLines, varint(varint(nil, lineFunction, line.Function.ID), lineLine, uint64(max(line.Line, 0))))
		}
		locations = messageAlways(locations, dictLocations, b)
	}
	d := append(append(mappings, locations...), functions...)
	// Some readers want ids of full length, even of no span.
	d = message(d, dictLinks, message(message(nil, linkTrace, make([]byte, 16)), linkSpan, make([]byte, 8)))
	for _, s := range e.strings.rows {
		d = messageAlways(d, dictStrings, []byte(s))
	}
	for _, a := range e.attributes.rows {
		d = messageAlways(d, dictAttributes, []byte(a))
	}
	for _, s := range e.stacks.rows {
		d = messageAlways(d, dictStacks, []byte(s))
	}
	return d
}

// varint appends a number, nothing for 0, which is what is not there.
func varint(b []byte, f protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return varintAlways(b, f, v)
}

func varintAlways(b []byte, f protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, f, protowire.VarintType), v)
}

// message appends a message or a packed list, nothing for an empty one.
func message(b []byte, f protowire.Number, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	return messageAlways(b, f, v)
}

func messageAlways(b []byte, f protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, f, protowire.BytesType), v)
}

func str(b []byte, f protowire.Number, s string) []byte { return message(b, f, []byte(s)) }
