module perimeter.dev/e2e/assets/kit

go 1.26.0
