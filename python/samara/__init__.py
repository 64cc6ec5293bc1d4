# SPDX-License-Identifier: Apache-2.0 OR MIT
"""samara: train many agents cheaply and reproducibly. This package holds the actors and the binding."""
