package timeline

import (
	"slices"
	"testing"
)

func TestLevel(t *testing.T) {
	for _, tt := range []struct {
		name       string
		sums, want []float64
	}{
		{"nothing to do", []float64{1, 2, 0}, []float64{1, 2, 0}},
		{"used before", []float64{1, 0, 3}, []float64{1, 1, 2}},
		{"far before", []float64{0, 2, 2, 4}, []float64{2, 2, 2, 2}},
		{"no room before", []float64{4, 0, 1}, []float64{2, 2, 1}},
		{"no room at all", []float64{3, 3}, []float64{4, 2}},
		{"none", nil, nil},
	} {
		got := slices.Clone(tt.sums)
		if Level(got, 2); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v of %v, want %v", tt.name, got, tt.sums, tt.want)
		}
	}
}
