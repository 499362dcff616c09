//! Parses Kubernetes quantities of CPU. Pure.

use k8s_openapi::api::core::v1::Pod;

/// Number of CPUs of a quantity such as `2`, `500m` or `0.5`; `None` if it is not a valid quantity.
pub fn cpus(text: &str) -> Option<f64> {
    let (number, scale) = match text.strip_suffix(['m', 'u', 'n', 'k']) {
        Some(number) => {
            let scale = match text.as_bytes().last()? {
                b'm' => 1e-3,
                b'u' => 1e-6,
                b'n' => 1e-9,
                _ => 1e3,
            };
            (number, scale)
        }
        None => (text, 1.0),
    };
    let cpus: f64 = number.parse().ok()?;
    (cpus.is_finite() && cpus >= 0.0).then_some(cpus * scale)
}

/// The CPU limit of a pod's container; `None` if it has none.
pub fn cpu_limit(pod: &Pod, container: &str) -> Option<f64> {
    let container = pod.spec.as_ref()?.containers.iter().find(|found| found.name == container)?;
    cpus(&container.resources.as_ref()?.limits.as_ref()?.get("cpu")?.0)
}

#[cfg(test)]
mod tests {
    use super::cpus;

    #[test]
    fn quantities_of_cpu_are_numbers() {
        let cases = [
            ("1", Some(1.0)),
            ("500m", Some(0.5)),
            ("0.25", Some(0.25)),
            ("1e1", Some(10.0)),
            ("", None),
            ("x", None),
            ("-1", None),
        ];
        for (text, expected) in cases {
            assert_eq!(cpus(text), expected, "{text}");
        }
    }
}
