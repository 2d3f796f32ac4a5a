# SPDX-License-Identifier: Apache-2.0
"""What the gallery shows (gallery.py): a picture of each kind."""

from forebay import viz


class Gallery(viz.Pictures):
    stream = "waves"

    def describe(self, config):
        shared = {"size": tuple(config.get("size", (1200, 900))), "caption": False}
        front = viz.Plane(normal=(0, 0, -1), point=(0, 0, 0.25))
        corner = viz.Plane(normal=(-1, 0, -1), point=(0.2, 0, 0.2))
        shells = viz.Contour("density", [0.2, 0.5, 0.8], color="density", colors="plasma", clip=[front])
        glass = viz.Contour("density", [0.3], color="heat", opacity=0.35)
        cloud = (0.6, 0.1, 0, 0, 0.1, 0.6)
        flow, white = ("u", "v", "w"), ("#ffffff", "#e8edf3")
        cut = [viz.Slice("density", axis, colors="cool-warm") for axis in "xyz"]
        above = viz.Camera(elevation=40)
        return [
            viz.Picture(
                name="contour", layers=[viz.Contour("density", [0.35], color="heat", closed=True)], **shared
            ),
            viz.Picture(name="nested", layers=[shells], **shared),
            viz.Picture(name="clip", layers=[viz.Clip("density", colors="viridis", clip=[corner])], **shared),
            viz.Picture(name="slices", layers=cut, background=white, **shared),
            viz.Picture(
                name="glass", layers=[glass, viz.Contour("density", [0.8], tint="#f0a050")], **shared
            ),
            viz.Picture(
                name="volume", layers=[viz.Volume("density", density=cloud, colors="cool-warm")], **shared
            ),
            viz.Picture(name="streamlines", layers=[viz.Streamlines(flow, colors="plasma")], **shared),
            viz.Picture(name="arrows", layers=[viz.Arrows(flow, every=6)], background=white, **shared),
            viz.Picture(
                name="stars",
                layers=[viz.Spheres("stars", radius=0.012, color="v", colors="inferno")],
                camera=above,
                **shared,
            ),
        ]
