// swift-tools-version:5.9
import PackageDescription

let package = Package(
    name: "@{title}Network",
    platforms: [.iOS(.v14), .macCatalyst(.v14), .macOS(.v11)],
    products: [.library(name: "@{title}Network", targets: ["@{title}Network"])],
    targets: [
        .binaryTarget(name: "@{name}", path: "@{name}.xcframework"),
        .target(name: "@{title}Network", dependencies: ["@{name}"]),
    ]
)
